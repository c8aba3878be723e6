package replay

import (
	"context"
	"math"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// pace says when the requests of a trace are due: at their times in the trace,
// counted from start and divided by speed. A speed of 0 means flat out, when
// nothing is ever due.
type pace struct {
	start time.Time // of the replay
	speed float64
	nap   func(time.Duration) // waits so long or less, and is exact
}

// due returns when a request at the time at of the trace is to be sent.
func (p pace) due(at time.Duration) time.Time {
	// A wait past any calendar is cut to one that a time.Time can hold.
	return p.start.Add(time.Duration(min(float64(at)/p.speed, math.MaxInt64/4)))
}

// wait returns when a request at the time at of the trace is due, at once if it
// is overdue or the replay is flat out. It fails with the cause of ctx being done.
func (p pace) wait(ctx context.Context, at time.Duration) error {
	if p.speed == 0 {
		return nil
	}
	return measure.Until(ctx, p.due(at), p.nap)
}
