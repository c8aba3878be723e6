package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
)

// backendCalls makes calls of a backend that end with their context. A call that goes on
// regardless is abandoned: its answer is dropped when it comes, and what it holds is
// released then.
type backendCalls struct {
	durations    *callDurations
	maxAbandoned int64         // see run
	abandoned    atomic.Int64  // calls that have not returned and that nobody waits for
	returned     chan struct{} // holds an element when an abandoned call may have returned
}

func newBackendCalls(maxAbandoned int, durations *callDurations) *backendCalls {
	return &backendCalls{durations: durations, maxAbandoned: int64(maxAbandoned), returned: make(chan struct{}, 1)}
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

// errNoReturn is the error of a call that neither returned nor panicked.
var errNoReturn = errors.New("the backend ended the call's goroutine")

// States of a call.
const (
	callRunning = iota
	callReturned
	callAbandoned
)

// backendCall is one call in flight.
type backendCall struct {
	state    atomic.Int32
	done     chan struct{} // closed when the call has returned and was not abandoned
	answers  []int
	err      error
	panicked any
}

// run makes one call. While maxAbandoned calls or more are abandoned it waits for one of
// them to return. memory is held until the call returns, also after run has. A panic of
// the call is run's, unless the call was abandoned: then it ends the process.
func (c *backendCalls) run(ctx context.Context, kind callKind, memory *keyBytes, do func() ([]int, error)) ([]int, error) {
	if err := c.waitForAbandoned(ctx); err != nil {
		return nil, err
	}
	defer c.durations.observe(kind, monotime.Now())
	call := &backendCall{done: make(chan struct{})}
	memory.hold()
	go c.do(call, memory, do)
	if !call.wait(ctx) {
		c.abandoned.Add(1) // before the call can end as abandoned
		if call.state.CompareAndSwap(callRunning, callAbandoned) {
			return nil, fmt.Errorf("the call was abandoned: %w", ctx.Err())
		}
		c.endAbandoned()
		<-call.done
	}
	if call.panicked != nil {
		panic(call.panicked)
	}
	return call.answers, call.err
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

// endAbandoned records that an abandoned call has returned.
func (c *backendCalls) endAbandoned() {
	c.abandoned.Add(-1)
	c.signal()
}

func (c *backendCalls) signal() {
	select {
	case c.returned <- struct{}{}:
	default:
	}
}

// do makes the call and publishes its result.
func (c *backendCalls) do(call *backendCall, memory *keyBytes, do func() ([]int, error)) {
	call.err = errNoReturn
	defer func() {
		memory.release()
		call.panicked = recover()
		if call.state.CompareAndSwap(callRunning, callReturned) {
			close(call.done)
			return
		}
		c.endAbandoned()
		if call.panicked != nil {
			panic(call.panicked)
		}
	}()
	call.answers, call.err = do()
}

// wait waits for a call, and returns false if its context ends first and the call does
// not return soon after.
func (call *backendCall) wait(ctx context.Context) bool {
	select {
	case <-call.done:
		return true
	case <-ctx.Done():
	}
	grace := time.NewTimer(returnGrace)
	defer grace.Stop()
	select {
	case <-call.done:
		return true
	case <-grace.C:
		return false
	}
}
