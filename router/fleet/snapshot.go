package fleet

import (
	"math/bits"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/router/events"
)

// Snapshot is what a fleet held at one moment: its holders, stale or not, and their blocks. Predictions are left
// out. It is immutable, and takes 12 bytes a block.
type Snapshot struct {
	tiers    []events.GroupTier
	tierAt   []uint32 // in tiers, by number
	holders  []savedHolder
	index    []int32 // of the holder of a number, -1 if there is none
	sets     []*holderSet
	segments []snapshotSegment
}

// savedHolder is a holder in JSON, with what it has said of its groups.
type savedHolder struct {
	ID
	Groups []groupSpec `json:"groups,omitempty"`
}

// snapshotSegment has records, with the index of their set.
type snapshotSegment struct {
	keys []uint64
	sets []uint32
}

// segmentsPerHold is how many segments are copied in one hold of the lock: about 100 µs, which lookups do not wait for.
const segmentsPerHold = 8

// Snapshot copies what the fleet holds. If holders are changed meanwhile, it may lack what is stored, or have what is
// removed: a caller that needs one moment pauses what changes them. Lookups go on, and so do changes.
func (f *Fleet) Snapshot() *Snapshot {
	f.room.RLock()
	defer f.room.RUnlock()
	var c *core
	f.locked(func() { c = f.core; c.copying++ })
	defer f.locked(func() { c.copying-- })
	s := &Snapshot{}
	s.copyRecords(f, c)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.index = make([]int32, len(c.numbers.list))
	for i := range s.index {
		s.index[i] = -1
	}
	if c != f.core {
		return s // all holders were closed
	}
	s.tierAt = make([]uint32, len(c.tiers.uses))
	for number, use := range c.tiers.uses {
		if s.tierAt[number] = uint32(len(s.tiers)); use.holders > 0 {
			s.tiers = append(s.tiers, *c.tiers.At(uint32(number)))
		}
	}
	for i, h := range f.holders {
		s.holders = append(s.holders, savedHolder{h.id, c.numbers.list[h.number].stated.specs})
		s.index[h.number] = int32(i)
	}
	return s
}

// copyRecords copies the log, some segments at a time.
func (s *Snapshot) copyRecords(f *Fleet, c *core) {
	index := map[*holderSet]uint32{}
	for from, isLast := 0, false; !isLast; from += segmentsPerHold {
		f.readLocked(func() {
			end := min(from+segmentsPerHold, len(c.log.segments))
			for i := from; i < end; i++ {
				if seg := c.log.segments[i]; seg != nil {
					s.segments = append(s.segments, s.copySegment(c, seg, index))
				}
			}
			isLast = end == len(c.log.segments)
		})
	}
}

func (s *Snapshot) copySegment(c *core, seg *segment, index map[*holderSet]uint32) snapshotSegment {
	to := snapshotSegment{make([]uint64, 0, seg.live), make([]uint32, 0, seg.live)}
	last, lastIndex := uint32(deadRecord), uint32(0)
	for i, num := range seg.sets[:seg.used] {
		if num == deadRecord {
			continue
		}
		if num != last {
			set := c.sets.at(num)
			at, ok := index[set]
			if !ok {
				at = uint32(len(s.sets))
				index[set] = at
				s.sets = append(s.sets, set)
			}
			last, lastIndex = num, at
		}
		to.keys, to.sets = append(to.keys, seg.keys[i]), append(to.sets, lastIndex)
	}
	return to
}

// Write writes the snapshot for Load, into a section of its own:
//
//	holders, then of each: savedHolder in JSON
//	groups and tiers, then of each: events.GroupTier in JSON
//	sets, then of each: pairs, then of each: number of its group and tier, word, bits (fixed); bit i of a word is holder 64*word + i
//	until the section ends: length of a run, its set, keys (fixed)
//
// It may be called several times.
func (s *Snapshot) Write(w *parts.Writer) {
	w.Uvarint(uint64(len(s.holders)))
	for i := range s.holders {
		w.JSON(&s.holders[i])
	}
	w.Uvarint(uint64(len(s.tiers)))
	for i := range s.tiers {
		w.JSON(&s.tiers[i])
	}
	s.writeRecords(w, s.writeSets(w))
}

// writeSets writes the sets that are not empty, and returns their numbers in the content, -1 for the empty ones.
func (s *Snapshot) writeSets(w *parts.Writer) []int64 {
	numbers, contents, n := make([]int64, len(s.sets)), make([][]pair, 0, len(s.sets)), int64(0)
	for i, set := range s.sets {
		numbers[i] = -1
		if pairs := s.renumber(set); len(pairs) > 0 {
			numbers[i] = n
			contents = append(contents, pairs)
			n++
		}
	}
	w.Uvarint(uint64(n))
	for _, pairs := range contents {
		w.Uvarint(uint64(len(pairs)))
		for _, p := range pairs {
			w.Uvarint(uint64(p.groupTier))
			w.Uvarint(uint64(p.word))
			w.Fixed64(p.bits)
		}
	}
	return numbers
}

// renumber returns the content of a set without predictions, with the indexes of holders, groups and tiers instead of
// their numbers.
func (s *Snapshot) renumber(set *holderSet) (pairs []pair) {
	for i := range set.pairs {
		p := &set.pairs[i]
		if p.groupTier&predictedIn != 0 {
			break // they come last
		}
		for holders := p.bits; holders != 0; holders &= holders - 1 {
			number := p.word*64 + uint32(bits.TrailingZeros64(holders))
			if int(number) < len(s.index) && s.index[number] >= 0 {
				index := uint32(s.index[number])
				pairs = addBit(pairs, s.tierAt[p.groupTier], index/64, 1<<(index%64))
			}
		}
	}
	return pairs
}

func (s *Snapshot) writeRecords(w *parts.Writer, numbers []int64) {
	for _, seg := range s.segments {
		for from := 0; from < len(seg.keys); {
			end := from + 1
			for end < len(seg.keys) && seg.sets[end] == seg.sets[from] {
				end++
			}
			if number := numbers[seg.sets[from]]; number >= 0 {
				w.Uvarint(uint64(end - from))
				w.Uvarint(uint64(number))
				for _, key := range seg.keys[from:end] {
					w.Fixed64(key)
				}
			}
			from = end
		}
	}
}
