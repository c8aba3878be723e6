package lookup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// errShortTime is the error of a call that timed out, but began with under half of its request's
// timeout left while the backend was answering others. The request had waited for a worker, or for
// rounds before. The breaker ignores it.
var errShortTime = errors.New("little time was left for the store")

// leftUnanswered is how long a call must have waited, when its client leaves, to say that a store that
// answers nobody does not answer it.
const leftUnanswered = 10 * time.Millisecond

// newBreaker returns the circuit breaker of a backend. It ignores blameless errors.
func newBreaker(cfg RemoteConfig) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     cfg.BreakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(cfg.BreakerFailures) },
		IsExcluded:  blameless,
	})
}

// blameless reports whether a call says nothing of the backend's health: it ended by our own doing, or was
// refused, which may be before the store is asked. As a success it would close the breaker of a dead store.
func blameless(err error) bool {
	return errors.Is(err, backend.ErrReadOnly) || errors.Is(err, context.Canceled) || errors.Is(err, errShortTime) || errors.Is(err, errAbandoned) ||
		errors.Is(err, requesterror.ErrFault)
}

// Down reports whether every call would fail: the breaker refuses it, or the backend knows that the store cannot be
// reached.
func (b *SharedBackend) Down() bool {
	return b.breaker.State() == gobreaker.StateOpen || b.unreachable() != nil
}

// Failure returns why the latest call of the backend failed, or else why its store cannot be reached, nil if neither
// is so. Calls that ended by our own doing, and refused changes, do not count.
func (b *SharedBackend) Failure() error {
	if failure := b.failure.Load(); failure != nil {
		return failure.error
	}
	return b.unreachable()
}

// unreachable returns why the store cannot be reached, nil if it can as far as the backend knows.
func (b *SharedBackend) unreachable() error {
	if b.watcher == nil {
		return nil
	}
	return b.watcher.Failure()
}

// ReportFailure makes err what Failure returns, until a call of a service succeeds: the store was asked by
// other means.
func (b *SharedBackend) ReportFailure(err error) { b.failure.Store(&callError{err}) }

// callError is the error of a failed call.
type callError struct{ error }

// breakerCall is one call of the backend, or the calls of one change, under the breaker.
type breakerCall struct {
	remote *remote
	ctx    context.Context
	kind   callKind
	began  time.Time
	// shortTime is set if under half of the request's timeout was left at the begin.
	shortTime bool
	// done reports the outcome to the breaker. It is nil for a change that began while
	// the breaker was half open, see report.
	done func(err error)
}

// beginRead begins a call that changes nothing.
func (r *remote) beginRead(ctx context.Context) (*breakerCall, error) {
	return r.beginCall(&breakerCall{remote: r, ctx: ctx, kind: callExists}, r.cfg.Timeout)
}

// beginChange begins a change.
func (r *remote) beginChange(ctx context.Context, kind callKind) (*breakerCall, error) {
	return r.beginCall(&breakerCall{remote: r, ctx: ctx, kind: kind}, r.cfg.WriteTimeout)
}

func (c *breakerCall) isChange() bool { return c.kind != callExists }

// beginCall fails if the request's time is up or the breaker is open. Otherwise end must
// be called. timeout is that of the whole request. If a burst is more than the backend serves in
// that time, the requests that get a worker last time out together. That must not open the breaker.
func (r *remote) beginCall(c *breakerCall, timeout time.Duration) (*breakerCall, error) {
	if err := c.ctx.Err(); err != nil { // spent in the queue; the backend is not to blame
		return nil, r.countLate(err, c.isChange())
	}
	deadline, ok := c.ctx.Deadline()
	c.began = time.Now()
	c.shortTime = ok && deadline.Sub(c.began) < timeout/2
	r.lastSuccess.CompareAndSwap(0, monotime.Now())
	if c.isChange() && r.breaker.State() == gobreaker.StateHalfOpen {
		return c, nil
	}
	var err error
	if c.done, err = r.breaker.Allow(); err != nil {
		r.rejected.Add(1)
		if failure := r.Failure(); failure != nil {
			return nil, requesterror.New(backend.ErrUnavailable, "%s; it is tried again soon", failure)
		}
		return nil, fmt.Errorf("%w: %s has failed and is tried again soon", backend.ErrUnavailable, r.store.Name())
	}
	return c, nil
}

// end reports how the call went to the breaker, the log and the counters, and returns the
// request's error.
func (c *breakerCall) end(err error) error {
	r := c.remote
	err = c.classify(err)
	failed := err != nil && !blameless(err)
	switch {
	case failed:
		r.failure.Store(&callError{err})
	case err == nil:
		r.failure.Store(nil)
		r.lastSuccess.Store(monotime.Now())
	}
	c.report(err)
	failure := err
	if !failed && !errors.Is(err, requesterror.ErrFault) {
		failure = nil
	}
	r.breakerLog.callEnded(r.breaker.State(), failure)
	c.updateEpoch(err)
	switch {
	case err == nil || errors.Is(err, backend.ErrReadOnly) || errors.Is(err, context.Canceled):
	case errors.Is(err, context.DeadlineExceeded) || ctxerr.Of(c.ctx) != nil:
		r.timeouts.Add(1)
	default:
		r.failed.Add(1)
	}
	return err
}

// classify marks errors that are not the backend's fault. A client that leaves is to blame for its call's
// end, unless the backend has answered nobody for long: it may hang, and every client leave before Timeout.
func (c *breakerCall) classify(err error) error {
	canceled := errors.Is(c.ctx.Err(), context.Canceled)
	if errors.Is(err, context.DeadlineExceeded) && ctxerr.Of(c.ctx) != nil {
		err = c.remote.withLimit(err, c.isChange())
	}
	switch waited := time.Since(c.began); {
	case err == nil:
	case canceled && waited >= leftUnanswered && !c.remote.isAnswering():
		return fmt.Errorf("%w, and the client has left", noAnswer(c.remote.store, waited))
	case canceled && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case c.shortTime && errors.Is(ctxerr.Of(c.ctx), context.DeadlineExceeded) && c.remote.isAnswering():
		return fmt.Errorf("%w: %w", errShortTime, err)
	}
	return err
}

// report reports the outcome to the breaker. While half open it admits one call at a
// time. If that were a reset, which may take a hundred times as long as a lookup, all
// lookups would be refused meanwhile. So a change does not ask to be admitted then, and
// reports its outcome only if the breaker is still half open.
func (c *breakerCall) report(err error) {
	if c.done != nil {
		c.done(err)
		return
	}
	breaker := c.remote.breaker
	if breaker.State() != gobreaker.StateHalfOpen {
		return
	}
	if done, refused := breaker.Allow(); refused == nil {
		done(err)
	}
}

// isAnswering reports whether the backend has answered some call, or was first asked, in
// the last BreakerPause or Timeout, whichever is longer. If it hangs and the workers' queue is long, each
// call begins with short time. Without this check the breaker would ignore them all.
func (r *remote) isAnswering() bool {
	return monotime.Now()-r.lastSuccess.Load() < int64(max(r.cfg.BreakerPause, r.cfg.Timeout))
}
