package coordinator

import (
	"sync/atomic"
	"time"
)

// keyYielder yields the processor of a keyBuilder to event loops, while that is cheap.
// Event loops return it soon. Another process keeps it for a time slice of some
// milliseconds, which at each yield of a long prompt would add up to a second.
var keyYielder = yielder{yieldCPU: schedYield, now: func() time.Duration { return time.Since(yieldStart) }}

var yieldStart = time.Now()

// yielder is safe for concurrent use.
type yielder struct {
	yieldCPU  func()
	now       func() time.Duration // monotonic
	notBefore atomic.Int64         // the time, by now, of the next yield allowed
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
