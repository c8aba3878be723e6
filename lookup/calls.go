package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
)

// backendCalls makes calls of a backend that end with their context. A backend that goes
// on regardless is left alone with its call: the answer is dropped when it comes, and
// what the call holds is given back then.
type backendCalls struct {
	maxAbandoned int64
	abandoned    atomic.Int64 // calls that nobody waits for any longer and that have not returned
}

const (
	// maxAbandonedReads is how many abandoned reads keep further ones from being made. A
	// backend that heeds its context has none. Reads already under way may be abandoned
	// beyond it.
	maxAbandonedReads = 64
	// maxAbandonedChanges is the same for changes: the next change must not be made before
	// an abandoned one that could undo it.
	maxAbandonedChanges = 1
	// returnGrace is how long a call may take to return after its context has ended, so
	// that a backend that heeds it can say what it was waiting for.
	returnGrace = 5 * time.Millisecond
)

// errAbandoned refuses a call while maxAbandoned others have not returned.
var errAbandoned = fmt.Errorf("%w: calls have not returned though their time was up", backend.ErrUnavailable)

// States of a call.
const (
	callRunning = iota
	callReturned
	callAbandoned
)

// run makes one call. memory is held until the call returns, also after run has.
func (c *backendCalls) run(ctx context.Context, memory *keyBytes, do func() ([]int, error)) ([]int, error) {
	if n := c.abandoned.Load(); n >= c.maxAbandoned {
		return nil, fmt.Errorf("%w: %d", errAbandoned, n)
	}
	var (
		state   atomic.Int32
		answers []int
		err     error
		done    = make(chan struct{})
	)
	memory.hold()
	go func() {
		answers, err = do()
		memory.release()
		if state.CompareAndSwap(callRunning, callReturned) {
			close(done)
		} else {
			c.abandoned.Add(-1)
		}
	}()
	if c.wait(ctx, done) {
		return answers, err
	}
	c.abandoned.Add(1) // before the call can take itself away
	if !state.CompareAndSwap(callRunning, callAbandoned) {
		c.abandoned.Add(-1)
		<-done
		return answers, err
	}
	return nil, fmt.Errorf("the call was abandoned: %w", ctx.Err())
}

// wait waits for a call, and returns false if its context ends first.
func (c *backendCalls) wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return false // nobody wants to know
	}
	grace := time.NewTimer(returnGrace)
	defer grace.Stop()
	select {
	case <-done:
		return true
	case <-grace.C:
		return false
	}
}
