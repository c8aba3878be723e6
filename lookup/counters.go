package lookup

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// counters count finished lookups. They are striped: each pooled query has a stripe, and a
// sync.Pool gives a query to the processor that used it last. So lookups on two cores do not
// write to the same cache line.
type counters struct {
	stripes []counterStripe
	next    atomic.Uint32 // the number of the next stripe to be chosen, modulo their count
}

// counterStripe is on cache lines of its own.
type counterStripe struct {
	lookups atomic.Int64
	_       cpu.CacheLinePad
}

// stripesPerProc makes it unlikely that the queries of two processors have the same stripe.
const stripesPerProc = 4

func newCounters() *counters {
	n := stripesPerProc * runtime.GOMAXPROCS(0)
	return &counters{stripes: make([]counterStripe, n+1)[1:]} // the first only pads what lies in front
}

// choose returns a stripe.
func (c *counters) choose() *counterStripe {
	return &c.stripes[int(c.next.Add(1))%len(c.stripes)]
}

// count adds a lookup to a stripe. It returns the stripe of the next one: another one if a
// lookup on another core has used this one meanwhile.
func (c *counters) count(at *counterStripe) *counterStripe {
	if n := at.lookups.Load(); !at.lookups.CompareAndSwap(n, n+1) {
		at.lookups.Add(1)
		return c.choose()
	}
	return at
}

// lookups returns the lookups of all stripes.
func (c *counters) lookups() (n int64) {
	for i := range c.stripes {
		n += c.stripes[i].lookups.Load()
	}
	return n
}
