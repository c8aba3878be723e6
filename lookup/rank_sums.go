package lookup

import (
	"hash/maphash"

	"github.com/hitline/hitline/index"
)

// rankSums adds up the ranks of equal hashes. Up to 0.24.0 the reference
// counts the ranks that hold a hash over all its occurrences in a request: two
// half-stored occurrences make a whole one. Hash chains do not repeat, so only requests
// made by hand differ.
type rankSums struct {
	partial []partialBlock
	// table finds the first block of a key: one more than its index in partial, at a place that
	// the key chooses or behind it; 0 is free. Its length is a power of two, and at most half of
	// it is used.
	table []uint32
}

// partialBlock is a position whose hash some ranks hold and others do not, or one that is not
// looked up, with 0 ranks.
type partialBlock struct {
	key      [2]uint64 // of the hash
	group    int32
	position int32
	first    uint32 // index of the first block of this group with an equal hash
	ranks    uint32 // of the first: the sum of the ranks of all of them
}

// maxPartialBlocks bounds the list of a lookup to 2 MiB and the table to 512 KiB, whatever a
// peer sends. Positions beyond it count as absent, so a hit is never too high.
const maxPartialBlocks = 1 << 16

// Two seeds make a fingerprint of 128 bits that no peer can predict.
var fingerprintSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// sumsRanks reports whether the configured revision adds up ranks.
func (s *Service) sumsRanks() bool { return s.coord.SumsRanks() }

// add appends a run of positions from the scan's on. keys begins at the first.
func (s *rankSums) add(q *Query, scan *groupScan, g int, run index.Run, keys []byte) {
	*q.workLeft -= run.N * addSumWork
	for i := range run.N {
		s.addBlock(g, scan.position+i, run.Coverage.Counts[g], keys[i*scan.receivedStride*q.hashLen:][:q.hashLen])
	}
}

// addBlock appends a position of group g with the number of ranks that hold its block.
func (s *rankSums) addBlock(g, position int, ranks uint16, key []byte) {
	if len(s.partial) == maxPartialBlocks {
		return
	}
	b := partialBlock{
		key:   [2]uint64{maphash.Bytes(fingerprintSeeds[0], key), maphash.Bytes(fingerprintSeeds[1], key)},
		group: int32(g), position: int32(position), first: uint32(len(s.partial)),
	}
	s.partial = append(s.partial, b)
	if 2*len(s.partial) > len(s.table) {
		s.growTable()
	}
	b.first = s.enter(b.first)
	s.partial[len(s.partial)-1].first = b.first
	s.partial[b.first].ranks += uint32(ranks)
}

// enter returns the index of the first block with the group and key of block i. If there is
// none, it enters i into the table and returns it.
func (s *rankSums) enter(i uint32) (first uint32) {
	b, mask := &s.partial[i], uint64(len(s.table)-1)
	for at := (b.key[0] + uint64(b.group)) & mask; ; at = (at + 1) & mask {
		if s.table[at] == 0 {
			s.table[at] = i + 1
			return i
		}
		if o := &s.partial[s.table[at]-1]; o.key == b.key && o.group == b.group {
			return s.table[at] - 1
		}
	}
}

// growTable doubles the table and enters the first blocks anew, but not the last block.
func (s *rankSums) growTable() {
	s.table = make([]uint32, max(2*len(s.table), 2*keptPartialBlocks))
	for i := range len(s.partial) - 1 {
		if s.partial[i].first == uint32(i) {
			s.enter(uint32(i))
		}
	}
}

const (
	// addSumWork is the work of adding a block to the list.
	addSumWork = 32
	// sumWork is the work of deciding about one block of the list.
	sumWork = 4
)

// resolve sets the bits of the positions whose equal hashes add up to all ranks.
func (s *rankSums) resolve(q *Query) {
	if len(s.partial) < 2 {
		return
	}
	for _, b := range s.partial {
		if int(s.partial[b.first].ranks) >= len(q.service.coord.Ranks(int(b.group))) {
			setBits(q.presence.Bits[b.group], int(b.position), 1)
		}
	}
}

// keptPartialBlocks is the capacity of a list that a pooled query keeps.
const keptPartialBlocks = 256

func (s *rankSums) reset() {
	switch {
	case cap(s.partial) > keptPartialBlocks:
		*s = rankSums{}
	case len(s.partial) > 0:
		s.partial = s.partial[:0]
		clear(s.table)
	}
}
