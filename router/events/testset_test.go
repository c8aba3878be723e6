package events

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/hitline/hitline/coordinator"
)

var gpu = Tier{Medium: "GPU"}

// joined returns hashes of hashLen bytes that begin with 8 bytes of each number.
func joined(hashLen int, numbers ...uint64) coordinator.Hashes {
	blob := make([]byte, 0, hashLen*len(numbers))
	for _, n := range numbers {
		blob = binary.BigEndian.AppendUint64(blob, n)
		blob = append(blob, make([]byte, hashLen-8)...)
	}
	return coordinator.NewHashes(blob, hashLen)
}

// testSet is a Holder for tests: a map of blocks. Safe for concurrent use.
type testSet struct {
	mu         sync.RWMutex
	stale      bool
	groupTiers GroupTiers
	blocks     map[testBlock]int // their number in the order of storing, from 1
	last       int
	dropped    int64 // by itself
}

// testBlock is a block in one group and tier.
type testBlock struct {
	groupTier uint32
	hash      string
}

func newTestSet() *testSet { return &testSet{stale: true, blocks: map[testBlock]int{}} }

func (s *testSet) Store(b *Blocks, held []bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	groupTier, err := s.groupTiers.FindOrAdd(b.Group, &b.Tier)
	if err != nil {
		return err
	}
	for i, hash := range b.Hashes.All() {
		block := testBlock{groupTier, string(hash)}
		if held[i] = s.blocks[block] > 0; !held[i] {
			s.last++
			s.blocks[block] = s.last
		}
	}
	return nil
}

func (s *testSet) Remove(b *Blocks) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, groupTier := range s.groupTiers.appendMatching(nil, b.Group, &b.Tier) {
		for _, hash := range b.Hashes.All() {
			delete(s.blocks, testBlock{groupTier, string(hash)})
		}
	}
	return nil
}

func (s *testSet) ClearTier(b *Blocks, stopped func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := s.groupTiers.appendMatching(nil, b.Group, &b.Tier)
	maps.DeleteFunc(s.blocks, func(block testBlock, _ int) bool { return slices.Contains(numbers, block.groupTier) })
	return stopped()
}

func (s *testSet) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groupTiers = GroupTiers{}
	clear(s.blocks)
}

// drop sets what Dropped returns.
func (s *testSet) drop(dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = dropped
}

func (s *testSet) Dropped() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.dropped
}

func (s *testSet) SetStale(stale bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = stale
}

func (s *testSet) Stale() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stale
}

func (s *testSet) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.blocks)
}

// Contains reports whether a block is held in exactly this group and tier, and not stale.
func (s *testSet) Contains(group int, tier Tier, hash []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	groupTier, ok := s.groupTiers.Find(group, &tier)
	return ok && !s.stale && s.blocks[testBlock{groupTier, string(hash)}] > 0
}

// Each calls yield for each block, stale or not, in the order of storing.
func (s *testSet) Each(yield func(*Blocks) bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	order := slices.SortedFunc(maps.Keys(s.blocks), func(a, b testBlock) int { return s.blocks[a] - s.blocks[b] })
	for _, block := range order {
		where := s.groupTiers.At(block.groupTier)
		b := Blocks{Group: where.Group, Tier: where.Tier, Hashes: coordinator.NewHashes([]byte(block.hash), len(block.hash))}
		if !yield(&b) {
			return
		}
	}
}
