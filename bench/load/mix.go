package load

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/hitline/hitline/netproto"
)

// slot is one request under way, and what its answer must be.
type slot struct {
	start  int64 // when it was sent, or fell due in an open loop; ns of the run
	sent   int64 // when it was handed to the connection
	counts bool  // it was sent, or fell due, while measuring

	tag    netproto.Tag
	hashes int32
	stored int32  // leading hashes that are stored
	expect uint32 // tokens, of a lookup
	room   []byte // for bytes that are made for the request; reused
}

// source makes the requests of a connection. It fills in s and returns parts with the request's
// bytes appended, which must stay as they are until its answer has come; false at the end.
type source func(s *slot, parts [][]byte) (request [][]byte, more bool)

// storing stores pieces, each request once.
func storing(pieces []piece) source {
	var c changes
	return func(s *slot, parts [][]byte) ([][]byte, bool) {
		for ; !c.left(); pieces = pieces[1:] {
			if len(pieces) == 0 {
				return parts, false
			}
			c.begin(netproto.TagStore, pieces[0])
		}
		return c.next(s, parts), true
	}
}

// changes makes the requests that store or evict a piece.
type changes struct {
	tag   netproto.Tag
	piece piece
	at    int // the next part
}

func (c *changes) begin(tag netproto.Tag, p piece) { *c = changes{tag: tag, piece: p} }

// left tells whether there is a next request.
func (c *changes) left() bool { return c.at < len(c.piece.parts) }

// next makes the next request, as a source does.
func (c *changes) next(s *slot, parts [][]byte) [][]byte {
	p := &c.piece.parts[c.at]
	c.at++
	head := p.store
	if c.tag == netproto.TagEvict {
		head = p.evict
	}
	keys, borrowed := p.keys(c.piece.hashes, s.room[:0])
	if !borrowed {
		s.room = keys
	}
	s.tag, s.hashes = c.tag, int32(p.to-p.from)
	return append(parts, head, keys)
}

// ask makes the lookup of a chain of which the first hashes are stored; absent takes
// the place of the others.
func (c *chain) ask(s *slot, stored int, expect uint32, absent []byte, parts [][]byte) [][]byte {
	s.tag, s.hashes, s.stored, s.expect = netproto.TagLookup, int32(c.shape.hashes), int32(stored), expect
	if stored == c.shape.hashes {
		return append(parts, c.request)
	}
	return append(parts, c.request[:len(c.shape.head)+stored*hashLen], absent)
}

// mix makes the requests that are measured: lookups of all chains in random order,
// and changes of the connection's own ones.
type mix struct {
	chains  *chains
	random  *rand.Rand
	hit     float64 // share of lookups
	store   float64 // share of operations
	changes float64 // share of operations, stores and evicts
	depth   int64   // requests under way at most
	made    int64   // requests

	own             []ownChain
	storeAt, freeAt int       // next to be stored, and evicted
	changing        *ownChain // it is being stored or evicted
	change          changes   // by these requests
	check           *ownChain // was changed, and is to be looked up
}

// ownChain is a chain that only its connection changes.
type ownChain struct {
	chain
	stored  bool   // as of what was sent
	nothing uint32 // tokens that a lookup hits when nothing is stored
	used    int64  // how many requests had been made when one needed its hashes last
	renewed uint64 // how often its hashes were replaced
}

// newMix returns the source of a connection, by its number.
func newMix(o Options, c *chains, s *shaper, number int) (*mix, error) {
	fresh := c.seed.Bytes(forMix, uint64(number))
	m := &mix{
		chains: c, random: rand.New(rand.NewPCG(fresh.Uint64(), fresh.Uint64())), depth: int64(o.Pipeline),
		hit: o.HitShare, store: o.Stores, changes: o.Stores + o.Evicts,
	}
	if m.changes == 0 {
		return m, nil
	}
	// Enough that the answer of the one to be replaced has mostly come.
	m.own = make([]ownChain, 2+int(2*float64(o.Pipeline)*o.Stores))
	for i := range m.own {
		sh := c.all[m.random.IntN(len(c.all))].shape
		made, err := s.chain(sh, make([]byte, sh.size()), 0, fresh)
		if err != nil {
			return nil, err
		}
		m.own[i] = ownChain{chain: made, nothing: made.miss}
	}
	return m, nil
}

// next is a source that never ends.
func (m *mix) next(s *slot, parts [][]byte) ([][]byte, bool) {
	m.made++
	switch {
	case m.changing != nil:
		return m.changeOwn(s, parts), true
	case m.check != nil:
		c := m.check
		m.check = nil
		return m.askOwn(c, s, parts), true
	}
	if x := m.random.Float64(); x < m.changes && m.begin(x < m.store) {
		return m.changeOwn(s, parts), true
	}
	c, absent, expect := m.pick()
	return c.ask(s, c.shape.hashes-len(absent)/hashLen, expect, absent, parts), true
}

// pick chooses a chain to look up, the absent hashes that take the place of its last
// ones, none of a hit, and the tokens that it hits.
func (m *mix) pick() (c *chain, absent []byte, expect uint32) {
	c = &m.chains.all[m.random.IntN(len(m.chains.all))]
	if m.random.Float64() < m.hit {
		return c, nil, c.shape.whole
	}
	return c, m.chains.absent(c.shape.hashes-c.leaves, m.random), c.miss
}

// begin begins to store or to evict a chain, the other where there is none for it.
// It tells whether it did: the hashes of a chain that is to be replaced may be part
// of a request that is still under way.
func (m *mix) begin(store bool) bool {
	if store || !m.own[m.freeAt].stored {
		c := &m.own[m.storeAt]
		if c.stored && !m.renew(c) {
			return false
		}
		m.storeAt = (m.storeAt + 1) % len(m.own)
		m.changing = c
		m.change.begin(netproto.TagStore, c.piece())
		return true
	}
	m.changing = &m.own[m.freeAt]
	m.change.begin(netproto.TagEvict, m.changing.piece())
	m.freeAt = (m.freeAt + 1) % len(m.own)
	return true
}

// renew makes another chain of one, whose hashes stay behind on the server.
func (m *mix) renew(c *ownChain) bool {
	if m.made-c.used < m.depth {
		return false
	}
	c.renewed++
	hashes := c.hashes()
	for at := 0; at < len(hashes); at += hashLen {
		binary.LittleEndian.PutUint64(hashes[at:], c.renewed)
	}
	return true
}

// changeOwn makes the next request of a store or an evict.
func (m *mix) changeOwn(s *slot, parts [][]byte) [][]byte {
	c := m.changing
	parts = m.change.next(s, parts)
	c.used = m.made
	if !m.change.left() {
		c.stored = m.change.tag == netproto.TagStore
		m.changing, m.check = nil, c
	}
	return parts
}

// askOwn makes the lookup of a chain that was changed.
func (m *mix) askOwn(c *ownChain, s *slot, parts [][]byte) [][]byte {
	c.used = m.made
	parts = c.ask(s, c.shape.hashes, c.shape.whole, nil, parts)
	if !c.stored {
		s.stored, s.expect = 0, c.nothing
	}
	return parts
}

// closing makes one ping, whose answer is the last thing to come.
func closing(request []byte) source {
	asked := false
	return func(s *slot, parts [][]byte) ([][]byte, bool) {
		if asked {
			return parts, false
		}
		asked = true
		s.tag = netproto.TagPing
		return append(parts, request), true
	}
}
