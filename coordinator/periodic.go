package coordinator

import "math"

// periodic is a set of positions that repeats: i is in it if i >= shift and
// (i-shift) mod period >= period-tail. In the zero value there is none. Every question is answered in
// constant time.
type periodic struct{ shift, period, tail int64 }

// everyPosition has all positions.
var everyPosition = periodic{period: 1, tail: 1}

// phase returns where i lies in its period, below 0 if it lies before the first or there is none.
func (p *periodic) phase(i int64) int64 {
	if i < p.shift || p.period == 0 {
		return -1
	}
	return (i - p.shift) % p.period
}

// has reports whether i is in the set.
func (p *periodic) has(i int64) bool {
	phase := p.phase(i)
	return phase >= 0 && phase >= p.period-p.tail
}

// next returns the first position in the set at or after i, math.MaxInt64 if there is none.
func (p *periodic) next(i int64) int64 {
	if p.tail == 0 {
		return math.MaxInt64
	}
	i = max(i, p.shift)
	return i + max(0, p.period-p.tail-p.phase(i))
}

// nextGap returns the first position at or after i that is not in the set, math.MaxInt64 if there is none.
func (p *periodic) nextGap(i int64) int64 {
	switch {
	case !p.has(i):
		return i
	case p.tail == p.period:
		return math.MaxInt64
	}
	return i + p.period - p.phase(i)
}

// last returns the last position in the set up to i, -1 if there is none.
func (p *periodic) last(i int64) int64 {
	if p.has(i) {
		return i
	}
	if end := i - p.phase(i) - 1; p.has(end) { // of the period before
		return end
	}
	return -1
}

// lastGap returns the last position up to i that is not in the set, -1 if there is none.
func (p *periodic) lastGap(i int64) int64 {
	switch {
	case !p.has(i):
		return i
	case p.tail == p.period:
		return p.shift - 1
	}
	return i - p.phase(i) + p.period - p.tail - 1
}

// count returns how many positions of the set are below n.
func (p *periodic) count(n int64) int64 {
	if n <= p.shift || p.period == 0 {
		return 0
	}
	n -= p.shift
	return n/p.period*p.tail + max(0, n%p.period-(p.period-p.tail))
}
