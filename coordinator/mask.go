package coordinator

import (
	"iter"
	"math"
)

// Mask is a list of booleans over the chunks of one group: true is a real
// block, false a null one (a position that is skipped). It is kept as a rule
// rather than as a list, so that its size does not depend on its length. The
// zero value is the empty list.
//
// A mask from StoreMask or LookupMask can be the all-true sentinel, the
// reference's None: nothing is masked. It has as many entries as a list would
// have for the same request, all true, and IsAll tells it from such a list.
type Mask struct {
	all    bool
	n      int64 // entries
	origin int64 // chunk number of entry 0; the rest is in chunk numbers

	// Chunk i is real if i >= shift and (i-shift) mod per >= per-need (per 0:
	// none are), or if it lies in [lo, hi).
	shift, per, need int64
	lo, hi           int64
}

// allMask is the sentinel of a rule, without end. StoreMask and LookupMask give it
// the length of the request at hand.
var allMask = Mask{all: true, n: math.MaxInt64}

// foundMask is null false entries followed by real true ones.
func foundMask(null, real int64) Mask {
	return Mask{n: null + real, lo: null, hi: null + real}
}

// repeated is the mask times after itself.
func (m Mask) repeated(times int64) Mask {
	return Mask{n: m.n * times, per: m.n, need: m.hi - m.lo}
}

// IsAll tells whether m is the all-true sentinel.
func (m Mask) IsAll() bool { return m.all }

// Len returns the number of entries, of the sentinel too.
func (m Mask) Len() int64 { return m.n }

// At returns entry i, false outside [0, Len()).
func (m Mask) At(i int64) bool {
	if i < 0 || i >= m.n {
		return false
	}
	if m.all {
		return true
	}
	i += m.origin
	return m.lo <= i && i < m.hi || m.periodic(i)
}

func (m *Mask) periodic(i int64) bool {
	return m.per > 0 && i >= m.shift && (i-m.shift)%m.per >= m.per-m.need
}

// Next returns the first run of true entries at or after entry i, half-open
// and clipped to begin at i. ok is false if there is none.
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

// nextTrue returns the first real chunk at or after chunk i, or MaxInt64.
func (m *Mask) nextTrue(i int64) int64 {
	next := int64(math.MaxInt64)
	if m.per > 0 && m.need > 0 {
		next = max(i, m.shift)
		if phase := (next - m.shift) % m.per; phase < m.per-m.need {
			next += m.per - m.need - phase
		}
	}
	if i < m.hi && m.lo < m.hi {
		next = min(next, max(i, m.lo))
	}
	return next
}

// runEnd returns the first chunk after i that is not real, or MaxInt64.
func (m *Mask) runEnd(i int64) int64 {
	for {
		switch {
		case m.lo <= i && i < m.hi:
			i = m.hi
		case !m.periodic(i):
			return i
		case m.need >= m.per:
			return math.MaxInt64
		default:
			i += m.per - (i-m.shift)%m.per
		}
	}
}

// Runs iterates over the runs of true entries as half-open ranges, in order. All
// end at or before Len().
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
