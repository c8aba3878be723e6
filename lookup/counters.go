package lookup

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/cpu"

	"github.com/hitline/hitline/lookup/api"
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
	lookups, hitTokens, missTokens atomic.Int64
	startLookups, startKeys        atomic.Int64 // of lookups with a start
	_                              cpu.CacheLinePad
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
func (c *counters) count(at *counterStripe, hitTokens, missTokens int64) *counterStripe {
	at.hitTokens.Add(hitTokens)
	at.missTokens.Add(missTokens)
	if n := at.lookups.Load(); !at.lookups.CompareAndSwap(n, n+1) {
		at.lookups.Add(1)
		return c.choose()
	}
	return at
}

// count adds a lookup of a prompt of some tokens to a stripe, and returns the stripe of the next
// one. What lies before the start counts neither as hit nor as missed.
func (s *Service) count(at *counterStripe, start, hit, tokens int64) *counterStripe {
	if start > 0 {
		at.startLookups.Add(1)
		at.startKeys.Add(s.coord.KeysBefore(start))
	}
	hit = max(hit, start)
	return s.counters.count(at, hit-start, max(tokens-hit, 0))
}

// addTo adds the counters of all stripes to stat.
func (c *counters) addTo(stat *api.Stat) {
	for i := range c.stripes {
		at := &c.stripes[i]
		stat.Lookups += at.lookups.Load()
		stat.HitTokens += at.hitTokens.Load()
		stat.MissTokens += at.missTokens.Load()
		stat.StartLookups += at.startLookups.Load()
		stat.StartKeys += at.startKeys.Load()
	}
}
