package index

import "math/bits"

// slotSet is a set of a segment's slots. Of a chain that lies in order nearly all
// words are full, so that one more word tells where the next one is that is not.
type slotSet struct {
	full  uint64 // bit w: word w has all bits set
	words [segmentSlots / 64]uint64
}

// setRange sets, or clears, n slots from i on.
func (s *slotSet) setRange(i, n int, value bool) {
	for end := i + n; i < end; {
		take := min(64-i%64, end-i)
		s.setBits(i/64, ^uint64(0)>>(64-take)<<(i%64), value)
		i += take
	}
}

// setBits sets, or clears, some bits of a word.
func (s *slotSet) setBits(word int, mask uint64, value bool) {
	if !value {
		s.words[word] &^= mask
		s.full &^= 1 << word
	} else if s.words[word] |= mask; s.words[word] == ^uint64(0) {
		s.full |= 1 << word
	}
}

// firstAbsent returns the first slot from i on that is not in the set, segmentSlots if there
// is none.
func (s *slotSet) firstAbsent(i int) int {
	if i >= segmentSlots {
		return segmentSlots
	}
	word := i / 64
	if w := ^s.words[word] >> (i % 64); w != 0 {
		return i + bits.TrailingZeros64(w)
	}
	behind := ^s.full &^ (2<<word - 1)
	if behind == 0 {
		return segmentSlots
	}
	word = bits.TrailingZeros64(behind)
	return word*64 + bits.TrailingZeros64(^s.words[word])
}

// firstPresent returns the first slot from i on that is in the set, segmentSlots if there is
// none.
func (s *slotSet) firstPresent(i int) int {
	for ; i < segmentSlots; i = i&^63 + 64 {
		if w := s.words[i/64] >> (i % 64); w != 0 {
			return i + bits.TrailingZeros64(w)
		}
	}
	return segmentSlots
}
