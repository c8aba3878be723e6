package load

import (
	"fmt"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// shape is what chains of equal length have in common. Read-only once it is made,
// but for misses, which only grows while chains are made.
type shape struct {
	hashes int
	tokens uint32 // that a lookup asks for
	head   []byte // of a lookup, up to the hashes
	whole  uint32 // tokens that a lookup hits when all is stored
	misses map[int]uint32
	parts  []part // requests that store, or evict, a chain
}

// size returns the bytes of a lookup.
func (s *shape) size() int { return len(s.head) + s.hashes*hashLen }

// part is one stretch of chunks of a group on one rank: one store or evict.
type part struct {
	from, to, stride int    // chunks, and hashes in each
	store, evict     []byte // heads, up to the keys
}

// keys returns the part's keys, borrowed from the hashes, or appended to room.
func (p part) keys(hashes, room []byte) (keys []byte, borrowed bool) {
	if p.stride == 1 { // they are all hashes of a stretch
		return hashes[p.from*hashLen : p.to*hashLen], true
	}
	for i := p.from; i < p.to; i++ {
		at := coordinator.KeyIndex(i, p.stride) * hashLen
		room = append(room, hashes[at:at+hashLen]...)
	}
	return room, false
}

// piece are hashes to store or evict, and the requests for that.
type piece struct {
	hashes []byte
	parts  []part
}

// shaper makes shapes and knows what a server must answer.
type shaper struct {
	coord    *coordinator.Coordinator
	envelope []byte
	scratch  coordinator.Scratch
	shapes   map[int]*shape
}

func newShaper(pool coordinator.Pool, envelope []byte) (*shaper, error) {
	coord, err := coordinator.New(pool)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrOptions, err)
	}
	return &shaper{coord: coord, envelope: envelope, shapes: map[int]*shape{}}, nil
}

// shape returns the shape of chains of n hashes.
func (s *shaper) shape(n int) (*shape, error) {
	if have := s.shapes[n]; have != nil {
		return have, nil
	}
	block, align := int64(s.coord.Pool().HashBlockSize), s.coord.Alignment()
	tokens := int64(n) * block / align * align
	if tokens == 0 || tokens > 1<<32-1 {
		return nil, measure.BadOptions("%d hashes of %d tokens; a lookup takes a multiple of %d tokens, and less than 2^32", n, block, align)
	}
	sh := &shape{hashes: n, tokens: uint32(tokens), misses: map[int]uint32{}}
	sh.head = netproto.AppendLookup(nil, s.envelope, sh.tokens, hashLen, n*hashLen)
	for g := range s.coord.NumGroups() {
		sh.parts = s.appendParts(sh.parts, g, s.coord.Positions(g, tokens, n))
	}
	var err error
	if sh.whole, err = s.answer(sh, n); err != nil {
		return nil, err
	}
	s.shapes[n] = sh
	return sh, nil
}

// appendParts appends the stores of a group's first chunks, as far as lookups ask for them, on
// every rank that must hold it.
func (s *shaper) appendParts(parts []part, g, end int) []part {
	for from, to := range s.asked(g, end) {
		for _, r := range s.coord.Ranks(g) {
			at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(r.TP), PPRank: uint16(r.PP), PCPRank: uint16(r.PCP)}
			p := part{from: from, to: to, stride: s.coord.KeyStride(g)}
			size := (to - from) * hashLen
			p.store = netproto.AppendKeys(nil, s.envelope, netproto.TagStore, netproto.WireRank(at), hashLen, size)
			p.evict = netproto.AppendKeys(nil, s.envelope, netproto.TagEvict, netproto.WireRank(at), hashLen, size)
			parts = append(parts, p)
		}
	}
	return parts
}

// asked iterates over the stretches of a group's first positions that lookups ask for, half-open.
func (s *shaper) asked(g, end int) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		mask := s.coord.KeyMask(g)
		for at := int64(0); at < int64(end); {
			from, to, ok := mask.Next(at)
			if !ok || from >= int64(end) {
				return
			}
			at = min(to, int64(end))
			if !yield(int(from), int(at)) {
				return
			}
		}
	}
}

// miss returns what a lookup hits of which only the first hashes are stored.
func (s *shaper) miss(sh *shape, stored int) (uint32, error) {
	if hit, ok := sh.misses[stored]; ok {
		return hit, nil
	}
	hit, err := s.answer(sh, stored)
	sh.misses[stored] = hit
	return hit, err
}

// answer asks the coordinator's rules.
func (s *shaper) answer(sh *shape, stored int) (uint32, error) {
	p := coordinator.Presence{NumHashes: sh.hashes, Bits: make([][]uint64, s.coord.NumGroups())}
	for g := range p.Bits {
		stride := s.coord.KeyStride(g)
		p.Bits[g] = make([]uint64, sh.hashes/stride/64+1)
		for from, to := range s.asked(g, s.coord.Positions(g, int64(sh.tokens), sh.hashes)) {
			for i := from; i < min(to, stored/stride); i++ {
				p.Bits[g][i/64] |= 1 << (i % 64)
			}
		}
	}
	hit, err := s.coord.Answer(&p, int64(sh.tokens), &s.scratch)
	if err != nil {
		return 0, measure.BadOptions("a lookup of %d hashes has no answer in this pool: %v", sh.hashes, err)
	}
	return uint32(hit.Tokens), nil
}
