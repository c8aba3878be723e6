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
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// backendCalls makes calls of a backend that end with their context. A call that goes on
// regardless is abandoned: its answer is dropped when it comes, and what it holds is
// released then.
type backendCalls struct {
	store        backend.Backend // for errors
	durations    *callDurations
	maxAbandoned int64          // see run
	returnedLate func(callKind) // called when an abandoned call has returned, nil for none
	abandoned    atomic.Int64   // calls that have not returned and that nobody waits for
	returned     chan struct{}  // holds an element when an abandoned call may have returned
}

func newBackendCalls(store backend.Backend, maxAbandoned int, durations *callDurations) *backendCalls {
	return &backendCalls{store: store, durations: durations, maxAbandoned: int64(maxAbandoned), returned: make(chan struct{}, 1)}
}

const (
	// maxAbandonedReads is how many abandoned reads make further ones wait. A backend that
	// heeds its context has none. Reads already in flight may be abandoned beyond it.
	maxAbandonedReads = 64
	// maxAbandonedChanges is the same for changes: an abandoned one may still take effect,
	// and must not undo a later one.
	maxAbandonedChanges = 1
	// returnGrace is how long a call may take to return after its context has ended, so
	// that a backend that heeds it can say what it was waiting for.
	returnGrace = 5 * time.Millisecond
)

// errAbandoned ends a call that was not made because too many abandoned ones had not
// returned when its time was up.
var errAbandoned = errors.New("calls before it have not returned though their time was up")

// run makes one call. While maxAbandoned calls or more are abandoned it waits for one of
// them to return. memory is held until the call returns, also after run has.
func (c *backendCalls) run(ctx context.Context, kind callKind, memory *keyBytes, do func() ([]int, error)) (answers []int, err error) {
	if err := c.waitForAbandoned(ctx); err != nil {
		return nil, err
	}
	began := monotime.Now()
	defer c.durations.observe(kind, began)
	var result struct {
		answers []int
		err     error
	}
	returned := make(chan struct{})
	memory.addHolder()
	go func() {
		defer close(returned)
		defer memory.release()
		defer requesterror.Recover(&result.err)
		result.answers, result.err = do()
	}()
	if waitReturned(ctx, returned) {
		return result.answers, result.err
	}
	c.abandoned.Add(1)
	go func() {
		<-returned
		if c.returnedLate != nil {
			c.returnedLate(kind)
		}
		c.abandoned.Add(-1)
		c.signal()
	}()
	return nil, ctxerr.Explain(ctx.Err(), noAnswer(c.store, time.Duration(monotime.Now()-began)))
}

// noAnswer returns the error of a call that store has not answered within waited.
func noAnswer(store backend.Backend, waited time.Duration) error {
	name := store.Name()
	if at, ok := store.(fmt.Stringer); ok {
		name = at.String() // with the address
	}
	return fmt.Errorf("%w: %s: no answer within %v", backend.ErrUnavailable, name, waited.Round(time.Millisecond))
}

// waitForAbandoned waits until fewer than maxAbandoned calls are abandoned, or for the end of ctx.
func (c *backendCalls) waitForAbandoned(ctx context.Context) error {
	for c.abandoned.Load() >= c.maxAbandoned {
		select {
		case <-c.returned:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errAbandoned, ctx.Err())
		}
	}
	if c.abandoned.Load() > 0 {
		c.signal() // another waiter may go on, too
	}
	return nil
}

// signal lets a waiter look at how many calls are abandoned.
func (c *backendCalls) signal() {
	select {
	case c.returned <- struct{}{}:
	default:
	}
}

// waitReturned waits for a call, and returns false if its context ends first and the call does
// not return soon after.
func waitReturned(ctx context.Context, returned <-chan struct{}) bool {
	select {
	case <-returned:
		return true
	case <-ctx.Done():
	}
	grace := time.NewTimer(returnGrace)
	defer grace.Stop()
	select {
	case <-returned:
		return true
	case <-grace.C:
		return false
	}
}
