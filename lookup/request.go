package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// leftUnanswered is how long a call must have waited, when its client leaves, to say that a store that
// answers nobody does not answer it.
const leftUnanswered = 10 * time.Millisecond

// requestCounters count the requests of one pool of the backend that failed, and calls that may
// have stored keys.
type requestCounters struct {
	failed, timeouts, rejected atomic.Int64
	stores                     atomic.Uint64
}

// request is one call of the backend, or the calls of one change, under the breaker. Whatever it
// has done is told in end: to the breaker, the log, the counters and the epoch.
type request struct {
	shared   *SharedBackend
	counters *requestCounters // of its pool
	ctx      context.Context
	kind     callKind
	began    time.Time
	// shortTime is set if under half of the request's timeout was left at the begin.
	shortTime bool
	done      func(err error) // of health.admit
}

// begin begins a request. It fails if the request's time is up or the breaker is open. Otherwise
// end must be called. In a burst the requests that get a worker last time out together: that must
// not open the breaker.
func (b *SharedBackend) begin(ctx context.Context, kind callKind, counters *requestCounters) (*request, error) {
	q := &request{shared: b, counters: counters, ctx: ctx, kind: kind}
	if err := ctx.Err(); err != nil { // spent in the queue; the backend is not to blame
		return nil, b.countLate(counters, err, kind)
	}
	timeout := b.cfg.Timeout
	if kind != callExists {
		timeout = b.cfg.WriteTimeout
	}
	deadline, ok := ctx.Deadline()
	q.began = time.Now()
	q.shortTime = ok && deadline.Sub(q.began) < timeout/2
	var err error
	if q.done, err = b.health.admit(kind != callExists); err != nil {
		counters.rejected.Add(1)
		return nil, err
	}
	return q, nil
}

// withTimeout returns ctx if its deadline is within timeout, as a server's is, and else a context that ends then. The
// caller must call cancel.
func withTimeout(ctx context.Context, timeout time.Duration) (bounded context.Context, cancel context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// exists makes one call that changes nothing, on this goroutine: the backend ends it with ctx.
func (q *request) exists(store backend.Backend, keys backend.Keys, peek bool) (answers []int, err error) {
	defer q.shared.durations.observe(callExists, monotime.Now())
	defer requesterror.Recover(&err)
	return store.Exists(q.ctx, keys, peek)
}

// change makes one call of a change.
func (q *request) change(change func(ctx context.Context) error) error {
	return q.shared.changes.run(q.ctx, q.kind, change)
}

// end ends a request, and returns its error. err is that of a change as markPartlyDone returns it.
func (q *request) end(err error) error {
	err = q.classify(err)
	q.shared.health.ended(q.done, err)
	if q.kind == callStore {
		q.counters.stores.Add(1) // also if it failed: it may have done a part
	}
	if q.mayHaveRemoved(err) {
		q.shared.memory.epoch.begin()
	}
	switch {
	case err == nil || errors.Is(err, backend.ErrReadOnly) || errors.Is(err, context.Canceled):
	case errors.Is(err, context.DeadlineExceeded) || ctxerr.Of(q.ctx) != nil:
		q.counters.timeouts.Add(1)
	default:
		q.counters.failed.Add(1)
	}
	return err
}

// classify marks errors that are not the backend's fault. A client that leaves is to blame for its call's
// end, unless the backend has answered nobody for long: it may hang, and every client leave before Timeout.
func (q *request) classify(err error) error {
	health, canceled := q.shared.health, errors.Is(q.ctx.Err(), context.Canceled)
	if errors.Is(err, context.DeadlineExceeded) && ctxerr.Of(q.ctx) != nil {
		err = q.shared.withLimit(err, q.kind)
	}
	switch waited := time.Since(q.began); {
	case err == nil:
	case canceled && waited >= leftUnanswered && !health.isAnswering():
		return fmt.Errorf("%w, and the client has left", noAnswer(q.shared.backend, waited))
	case canceled && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case q.shortTime && errors.Is(ctxerr.Of(q.ctx), context.DeadlineExceeded) && health.isAnswering():
		return fmt.Errorf("%w: %w", errShortTime, err)
	}
	return err
}

// mayHaveRemoved reports whether keys may have gone by or during a call. A read that is only late
// says nothing of that: if it did, a store that is slow under load would have all of it asked
// again, and stay slow.
func (q *request) mayHaveRemoved(err error) bool {
	refused := errors.Is(err, backend.ErrReadOnly) && !isPartlyDone(err)
	if q.kind == callEvict || q.kind == callReset {
		return !refused
	}
	late := errors.Is(err, context.Canceled) || ctxerr.Of(q.ctx) != nil
	return err != nil && !refused && !late
}

// markPartlyDone makes an error wrap api.ErrPartlyDone if a part of the change was done, as far as it is known.
func markPartlyDone(someDone bool, err error) error {
	if err != nil && (someDone || isPartlyDone(err)) {
		return fmt.Errorf("%w: %w", api.ErrPartlyDone, err)
	}
	return err
}

// isPartlyDone reports whether a part of a change was done, as far as its error says.
func isPartlyDone(err error) bool {
	return errors.Is(err, api.ErrPartlyDone) || errors.Is(err, backend.ErrPartlyDone)
}

// countLate counts a request whose time was up before a call, and returns why in words.
func (b *SharedBackend) countLate(counters *requestCounters, why error, kind callKind) error {
	if !errors.Is(why, context.DeadlineExceeded) {
		return why
	}
	counters.timeouts.Add(1)
	return b.withLimit(ctxerr.Explain(why, errors.New("the time was up before the store was asked")), kind)
}

// withLimit adds to the error of a request whose time was up the setting that bounds it. None bounds changes.
func (b *SharedBackend) withLimit(err error, kind callKind) error {
	if kind != callExists {
		return err
	}
	return fmt.Errorf("%w; backend.%s.timeout is %v", err, b.backend.Name(), b.cfg.Timeout)
}

// noAnswer returns the error of a call that store has not answered within waited.
func noAnswer(store backend.Backend, waited time.Duration) error {
	name := store.Name()
	if at, ok := store.(fmt.Stringer); ok {
		name = at.String() // with the address
	}
	return fmt.Errorf("%w: %s: no answer within %v", backend.ErrUnavailable, name, waited.Round(time.Millisecond))
}
