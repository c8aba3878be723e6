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

	rule  periodic // chunk numbers that are real
	extra [2]run   // more of them
}

// run is the chunks [lo, hi).
type run struct{ lo, hi int64 }

func (r run) has(i int64) bool { return r.lo <= i && i < r.hi }

// allMask is the sentinel without an end. boundMasks sets its length.
var allMask = Mask{all: true, n: math.MaxInt64, rule: everyPosition}

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
	return m.extra[0].has(i) || m.extra[1].has(i) || m.rule.has(i)
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
	next := m.rule.next(i)
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
	for i < math.MaxInt64 {
		switch {
		case m.extra[0].has(i):
			i = m.extra[0].hi
		case m.extra[1].has(i):
			i = m.extra[1].hi
		case m.rule.has(i):
			i = m.rule.nextGap(i)
		default:
			return i
		}
	}
	return i
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
