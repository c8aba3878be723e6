package coordinator

import (
	"sync/atomic"
	"time"
)

// yields lets builders of keys yield their processor while that costs little. Event
// loops give it back soon. Another process that has use for it keeps it for a time slice,
// some milliseconds, which at each yield of a long prompt would add up to a second.
var yields = yielder{core: yieldCore, now: func() time.Duration { return time.Since(yieldStart) }}

var yieldStart = time.Now()

type yielder struct {
	core  func()
	now   func() time.Duration // monotonic
	again atomic.Int64         // when the next yield may be made, by now
}

const (
	// longYield is how long a yield takes that did not go to an event loop.
	longYield = time.Millisecond
	// yieldPause is for how long nobody yields after a long one: it then costs a
	// hundredth of the time at most.
	yieldPause = 500 * time.Millisecond
)

// yield lets another thread have the processor, unless that took long just now.
func (y *yielder) yield() {
	begun := y.now()
	if int64(begun) < y.again.Load() {
		return
	}
	y.core()
	if ended := y.now(); ended-begun > longYield {
		y.again.Store(int64(ended + yieldPause))
	}
}
