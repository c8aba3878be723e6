package coordinator

import (
	"iter"
	"math"
)

// Mask is a list of booleans over the chunks of one group: true is a real block, false a
// null one, which is skipped. It is kept as a rule instead of a list, so its size does not
// depend on its length. The zero value is the empty list. A Mask is an immutable value.
//
// A mask from StoreMask or LookupMask can be the all-true sentinel, the reference's None:
// no chunk is skipped. It has as many entries as a list for the same request, all true.
// Only IsAll tells it from such a list.
type Mask struct {
	all    bool
	n      int64 // entries
	origin int64 // chunk number of entry 0

	// The rule, in chunk numbers. Chunk i is real if it is periodic: i >= shift and
	// (i-shift) mod period >= period-tail. With period 0 no chunk is. It is also real
	// if it lies in one of the extra runs.
	shift, period, tail int64
	extra               [2]run
}

// run is the chunks [lo, hi).
type run struct{ lo, hi int64 }

func (r run) has(i int64) bool { return r.lo <= i && i < r.hi }

// allMask is the sentinel without an end. boundMasks sets its length.
var allMask = Mask{all: true, n: math.MaxInt64}

// tailMask returns the mask of null false entries followed by real true ones.
func tailMask(null, real int64) Mask {
	return Mask{n: null + real, extra: [2]run{{null, null + real}}}
}

// IsAll reports whether m is the all-true sentinel.
func (m Mask) IsAll() bool { return m.all }

// Len returns the number of entries, for the sentinel too.
func (m Mask) Len() int64 { return m.n }

// First returns the chunk number of entry 0: entry i is chunk First()+i of the group. It is 0
// unless StoreMask was given a start token, or From has cut it. It is set for empty masks too.
func (m Mask) First() int64 { return m.origin }

// From returns m without the entries before a chunk number, which is not negative.
func (m Mask) From(chunk int64) Mask {
	cut := min(max(chunk-m.origin, 0), m.n)
	m.origin += cut
	m.n -= cut
	return m
}

// At returns entry i, or false if i is outside [0, Len()).
func (m Mask) At(i int64) bool {
	if i < 0 || i >= m.n {
		return false
	}
	if m.all {
		return true
	}
	i += m.origin
	return m.extra[0].has(i) || m.extra[1].has(i) || m.periodic(i)
}

// periodic reports whether the periodic part of the rule makes chunk i real.
func (m *Mask) periodic(i int64) bool {
	return m.period > 0 && i >= m.shift && (i-m.shift)%m.period >= m.period-m.tail
}

// Next returns the first run [start, end) of true entries with start at or after entry i.
// If entry i is inside a run, start is i. ok is false if there is none.
func (m Mask) Next(i int64) (start, end int64, ok bool) {
	i = max(0, i)
	if i >= m.n {
		return 0, 0, false
	}
	if m.all {
		return i, m.n, true
	}
	at := m.nextTrue(m.origin + i)
	start = at - m.origin
	if start >= m.n {
		return 0, 0, false
	}
	return start, min(m.n, m.runEnd(at)-m.origin), true
}

// nextTrue returns the first real chunk at or after chunk i, math.MaxInt64 if there is
// none.
func (m *Mask) nextTrue(i int64) int64 {
	next := int64(math.MaxInt64)
	if m.period > 0 && m.tail > 0 {
		next = max(i, m.shift)
		if phase := (next - m.shift) % m.period; phase < m.period-m.tail {
			next += m.period - m.tail - phase
		}
	}
	for _, r := range m.extra {
		if i < r.hi && r.lo < r.hi {
			next = min(next, max(i, r.lo))
		}
	}
	return next
}

// runEnd returns the first chunk at or after chunk i that is not real, math.MaxInt64 if
// there is none.
func (m *Mask) runEnd(i int64) int64 {
	for {
		switch {
		case m.extra[0].has(i):
			i = m.extra[0].hi
		case m.extra[1].has(i):
			i = m.extra[1].hi
		case !m.periodic(i):
			return i
		case m.tail >= m.period:
			return math.MaxInt64
		default:
			i += m.period - (i-m.shift)%m.period
		}
	}
}

// setFirst sets the bits of the true entries below n. It takes a time by the words of the set,
// however many runs there are. m must be a mask of KeyMask: it has no extra runs and begins with
// chunk 0.
func (m *Mask) setFirst(set []uint64, n int) {
	if m.all {
		setBits(set, 0, n)
		return
	}
	words := int(min(m.period, int64(n/64))) + 1 // the bits repeat after as many words as the period has entries
	for at := int64(0); ; {
		start, end, ok := m.Next(at)
		if !ok || start >= int64(min(n, 64*words)) {
			break
		}
		at = min(end, int64(n))
		setBits(set, int(start), int(at))
	}
	for w := words; 64*w < n; w++ {
		set[w] = set[w-int(m.period)]
	}
	if n%64 != 0 {
		set[n/64] &= lowBits(n % 64)
	}
}

// countFirst returns how many of the first n entries are true. m must be as for setFirst.
func (m *Mask) countFirst(n int64) int64 {
	switch {
	case m.all:
		return n
	case m.period == 0 || n <= m.shift:
		return 0
	}
	n -= m.shift
	return n/m.period*m.tail + max(0, n%m.period-(m.period-m.tail))
}

// Runs iterates over the runs [start, end) of true entries, in order, within [0, Len()).
func (m Mask) Runs() iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		for at := int64(0); ; {
			start, end, ok := m.Next(at)
			if !ok || !yield(start, end) {
				return
			}
			at = end
		}
	}
}
