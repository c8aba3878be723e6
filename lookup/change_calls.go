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

// changeCalls makes the calls of a backend that change it. They end with their context. A call that goes on
// regardless is abandoned. No further one is made until it has returned: it may still take effect, and must not undo
// a later one.
type changeCalls struct {
	store        backend.Backend // for errors
	durations    *callDurations
	returnedLate func(callKind) // called when an abandoned call has returned
	abandoned    atomic.Int64   // calls that have not returned and that nobody waits for
	returned     chan struct{}  // holds an element when an abandoned call may have returned
}

func newChangeCalls(store backend.Backend, durations *callDurations, returnedLate func(callKind)) *changeCalls {
	return &changeCalls{store: store, durations: durations, returnedLate: returnedLate, returned: make(chan struct{}, 1)}
}

// returnGrace is how long a call may take to return after its context has ended, so that a backend that heeds it can
// say what it was waiting for.
const returnGrace = 5 * time.Millisecond

// errAbandoned ends a call that was not made because an abandoned one had not returned when its time was up.
var errAbandoned = errors.New("calls before it have not returned though their time was up")

// run makes one call, once no call is abandoned.
func (c *changeCalls) run(ctx context.Context, kind callKind, change func(ctx context.Context) error) error {
	if err := c.waitForAbandoned(ctx); err != nil {
		return err
	}
	began := monotime.Now()
	defer c.durations.observe(kind, began)
	var result error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer requesterror.Recover(&result)
		result = change(ctx)
	}()
	if waitReturned(ctx, returned) {
		return result
	}
	c.abandoned.Add(1)
	go func() {
		<-returned
		c.returnedLate(kind)
		c.abandoned.Add(-1)
		c.signal()
	}()
	return ctxerr.Explain(ctx.Err(), noAnswer(c.store, time.Duration(monotime.Now()-began)))
}

// waitForAbandoned waits until no call is abandoned, or for the end of ctx.
func (c *changeCalls) waitForAbandoned(ctx context.Context) error {
	waited := false
	for c.abandoned.Load() > 0 {
		select {
		case <-c.returned:
			waited = true
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errAbandoned, ctx.Err())
		}
	}
	if waited {
		c.signal() // the other waiters may go on, too
	}
	return nil
}

// signal lets a waiter look at how many calls are abandoned.
func (c *changeCalls) signal() {
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
