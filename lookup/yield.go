package lookup

import (
	"sync/atomic"
	"time"
)

// yielder yields the processor to event loops while keys are built, as long as that is cheap.
// The keys of a long prompt take a millisecond, for which an event loop would wait where
// processors are few. Event loops return the processor soon. Another process keeps it for a time
// slice of some milliseconds, which at each yield of a long prompt would add up to a second.
// A yielder is safe for concurrent use.
type yielder struct {
	yieldCPU  func()
	now       func() time.Duration // monotonic
	notBefore atomic.Int64         // the time, by now, of the next yield allowed
}

func newYielder() *yielder {
	start := time.Now()
	return &yielder{yieldCPU: schedYield, now: func() time.Duration { return time.Since(start) }}
}

const (
	// longYield is the duration above which a yield did not go to an event loop.
	longYield = time.Millisecond
	// yieldPause is the time without yields after a long one. A time slice of 5 ms
	// then costs a hundredth of the time.
	yieldPause = 500 * time.Millisecond
)

// yield yields the processor to another thread, unless a recent yield was long.
func (y *yielder) yield() {
	begun := y.now()
	if int64(begun) < y.notBefore.Load() {
		return
	}
	y.yieldCPU()
	if ended := y.now(); ended-begun > longYield {
		y.notBefore.Store(int64(ended + yieldPause))
	}
}
