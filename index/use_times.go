package index

import (
	"sort"
	"time"
)

// useTimes tells about when the clock of an index had a number: to a 32nd of the time since the first sample.
type useTimes struct {
	samples [64]useTime // oldest first
	n       int
	every   int // calls of add for a sample
	skipped int // since the last sample
}

// useTime is what the clock of an index was at a time.
type useTime struct {
	clock uint64
	at    time.Time
}

// add takes a sample, unless it comes too soon after the last one.
func (u *useTimes) add(clock uint64, now time.Time) {
	if u.skipped++; u.skipped < u.every {
		return
	}
	if u.n == len(u.samples) { // every second one goes
		for u.n = range len(u.samples) / 2 {
			u.samples[u.n] = u.samples[2*u.n]
		}
		u.n++
		u.every = 2 * max(u.every, 1)
	}
	u.samples[u.n] = useTime{clock, now}
	u.n++
	u.skipped = 0
}

// age returns how long ago a use was, at least.
func (u *useTimes) age(clock uint64, now time.Time) time.Duration {
	i := sort.Search(u.n, func(i int) bool { return u.samples[i].clock >= clock })
	if i == u.n {
		return 0
	}
	return now.Sub(u.samples[i].at)
}

// EvictionAge returns for how long, at least, what the index evicted last to make room was not used, and whether it has
// evicted anything for that since the last Reset. It is exact to a 32nd of the time since the first call if it is called
// about once a second: the calls are what relates uses to times.
func (x *Index) EvictionAge(now time.Time) (age time.Duration, evicts bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.useTimes.add(x.clock, now)
	return x.useTimes.age(x.evictedUse, now), x.evicting
}
