package events

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hitline/hitline/netproto"
)

// Errors of a Set.
var (
	ErrFull    = errors.New("events: the source holds too many blocks")
	ErrHashLen = errors.New("events: the source holds hashes of another length")
)

// maxRun is how many hashes one Blocks of Each has at most.
const maxRun = 4096

// Set is a Holder in memory: the blocks of one source. It takes at most 32 bytes for a block
// with a hash of 8 bytes and 64 for one with 32, beside a minimum of 2 KiB. Memory of removed blocks
// is reused, and freed by Clear. All hashes have one length, as those of an engine do. Safe for
// concurrent use.
//
// If an engine has one group, of full attention, its prefix of a prompt is the leading blocks that
// Contains finds. With other groups the rules of the engine decide: lookup/feed fills a pool of a
// lookup.Service, which knows them.
type Set struct {
	mu     sync.RWMutex
	max    int
	stale  bool
	places places
	table  blockTable
	match  []placeID // reused by Remove
}

// NewSet returns an empty set, of at most maxBlocks blocks (0: DefaultMaxBlocks). It is stale.
func NewSet(maxBlocks int) *Set {
	if maxBlocks <= 0 {
		maxBlocks = DefaultMaxBlocks
	}
	return &Set{max: maxBlocks, stale: true}
}

// Store implements Holder. It fails with ErrFull, ErrHashLen or ErrPlaces, having stored some of
// the blocks. A block that is held keeps its place in the order.
func (s *Set) Store(b *Blocks, held []bool) error {
	n := b.Hashes.Len()
	if n == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.live == 0 && s.table.hashLen != b.Hashes.HashLen() {
		s.table.init(b.Hashes.HashLen())
	}
	if s.table.hashLen != b.Hashes.HashLen() {
		return fmt.Errorf("%w: %d bytes, not %d", ErrHashLen, s.table.hashLen, b.Hashes.HashLen())
	}
	at, err := s.places.findOrAdd(b.Group, &b.Tier)
	if err != nil {
		return err
	}
	var sums [maxAhead]uint32
	for i := range n {
		if i%maxAhead == 0 {
			s.table.sumAll(&sums, part(b.Hashes, i), at)
		}
		was, ok := s.table.insert(b.Hashes.At(i), at, sums[i%maxAhead], s.max)
		if !ok {
			return fmt.Errorf("%w: over %d", ErrFull, s.max)
		}
		held[i] = was
	}
	return nil
}

// part returns the bytes of at most maxAhead hashes from number i on.
func part(hashes netproto.Hashes, i int) []byte {
	n := hashes.HashLen()
	return hashes.Bytes()[i*n : min(i+maxAhead, hashes.Len())*n]
}

// Remove implements Holder. A group, or a field of a tier, that is absent on either side matches
// any.
func (s *Set) Remove(b *Blocks) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Hashes.HashLen() != s.table.hashLen {
		return nil
	}
	s.match = s.places.matching(s.match[:0], b.Group, &b.Tier)
	var sums [maxAhead]uint32
	for _, at := range s.match {
		for i := range b.Hashes.Len() {
			if i%maxAhead == 0 {
				s.table.sumAll(&sums, part(b.Hashes, i), at)
			}
			s.table.remove(b.Hashes.At(i), at, sums[i%maxAhead])
		}
	}
	return nil
}

// Clear implements Holder. It frees the memory.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = places{}
	s.table.reset()
}

// SetStale implements Holder.
func (s *Set) SetStale(stale bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = stale
}

// Stale reports whether the source may have missed events.
func (s *Set) Stale() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stale
}

// Len returns the number of blocks, stale or not.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.live
}

// Contains reports whether a block is held in exactly this group and tier, and not stale. vLLM names
// the group, and for its own cache the tier {Medium: "GPU"}. SGLang names no group: NoGroup. A hash has
// the form that the engine sends: the whole digest, or 8 bytes of an integer, big-endian. Each shows the
// groups and tiers that there are.
func (s *Set) Contains(group int, tier Tier, hash []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.stale {
		return false
	}
	at, ok := s.places.find(group, &tier)
	return ok && s.table.contains(hash, at)
}

// Each calls yield for all blocks in the order in which they were stored, stale or not, until it
// returns false. Blocks of one place that were stored one after another come together, at most
// 4,096 of them. Parent and BlockSize are not kept, so they are zero. The Blocks are borrowed
// until yield returns, which must not call other methods of the Set.
func (s *Set) Each(yield func(*Blocks) bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := &s.table
	for from := 0; from < len(t.places); {
		at := t.places[from]
		to := from + 1
		for to < len(t.places) && t.places[to] == at && to-from < maxRun {
			to++
		}
		if at != removedPlace {
			where := &s.places.list[at]
			hashes := t.hashes[from*t.hashLen : to*t.hashLen : to*t.hashLen]
			b := Blocks{Group: where.group, Tier: where.tier, Hashes: netproto.NewHashes(hashes, t.hashLen)}
			if !yield(&b) {
				return
			}
		}
		from = to
	}
}
