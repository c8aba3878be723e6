package measure

import (
	"context"
	"time"
)

// napLength is the end of a wait that a timer is not trusted with.
const napLength = 2 * time.Millisecond

// Until waits until a moment, within microseconds: the timers of the runtime fire up to a
// millisecond late, a multiple of what a lookup takes. It returns at due, or at once if that has passed. It fails with the cause of ctx
// being done. nap waits for so long or less and is exact: Nap, or time.Sleep in a
// bubble of testing/synctest, whose clock does not move while Nap spins.
func Until(ctx context.Context, due time.Time, nap func(time.Duration)) error {
	for {
		left := time.Until(due)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case left <= 0:
			return nil
		case left <= napLength:
			nap(left)
		default:
			sleep(ctx, left-napLength)
		}
	}
}

// sleep returns after d, or earlier when ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
