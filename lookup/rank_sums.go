package lookup

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/hitline/hitline/index"
)

// rankSums adds up the ranks of equal hashes. Up to 0.24.0 the reference
// counts the ranks that hold a hash over all its occurrences in a request: two
// half-stored occurrences make a whole one. Hash chains do not repeat, so only requests
// made by hand differ.
type rankSums struct {
	partial []partialBlock
}

// partialBlock is a position whose hash some ranks hold and others do not, or one that is not
// looked up, with 0 ranks.
type partialBlock struct {
	key      [2]uint64 // of group and hash
	group    int32
	position int32
	ranks    uint16
}

// maxPartialBlocks bounds the list of a lookup to 2 MiB, whatever a peer sends. Positions
// beyond it count as absent, so a hit is never too high.
const maxPartialBlocks = 1 << 16

// Two seeds make a fingerprint of 128 bits that no peer can predict.
var fingerprintSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// sumsRanks reports whether the configured revision adds up ranks.
func (s *Service) sumsRanks() bool { return s.coord.SumsRanks() }

// add appends a run of positions from the scan's on. keys begins at the first.
func (s *rankSums) add(q *Query, scan *groupScan, g int, run index.Run, keys []byte) {
	for i := range run.N {
		s.addBlock(g, scan.position+i, run.Coverage.Counts[g], keys[i*scan.receivedStride*q.hashLen:][:q.hashLen])
	}
}

// addBlock appends a position of group g with the number of ranks that hold its block.
func (s *rankSums) addBlock(g, position int, ranks uint16, key []byte) {
	if len(s.partial) == maxPartialBlocks {
		return
	}
	s.partial = append(s.partial, partialBlock{
		key:   [2]uint64{maphash.Bytes(fingerprintSeeds[0], key), maphash.Bytes(fingerprintSeeds[1], key)},
		group: int32(g), position: int32(position), ranks: ranks,
	})
}

// sumWork is the work of sorting one block of the list and adding it up.
const sumWork = 64

// resolve sets the bits of the positions whose equal hashes add up to all ranks.
func (s *rankSums) resolve(q *Query) {
	if len(s.partial) < 2 {
		return
	}
	slices.SortFunc(s.partial, func(a, b partialBlock) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.key[0], b.key[0]), cmp.Compare(a.key[1], b.key[1]))
	})
	for from := 0; from < len(s.partial); {
		to, ranks := from, 0
		first := s.partial[from]
		for ; to < len(s.partial) && s.partial[to].group == first.group && s.partial[to].key == first.key; to++ {
			ranks += int(s.partial[to].ranks)
		}
		if ranks >= len(q.service.coord.Ranks(int(first.group))) {
			for _, o := range s.partial[from:to] {
				setBits(q.presence.Bits[o.group], int(o.position), 1)
			}
		}
		from = to
	}
}

// keptPartialBlocks is the capacity of a list that a pooled query keeps.
const keptPartialBlocks = 256

func (s *rankSums) reset() {
	if cap(s.partial) > keptPartialBlocks {
		s.partial = nil
	}
	s.partial = s.partial[:0]
}
