package load

import (
	"cmp"

	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/netproto"
)

// conversations returns the options of conversations, with defaults.
func (o Options) conversations() *workload.ConversationOptions {
	c := *o.Conversations
	c.Hashes, c.Seed, c.Pipeline = o.Hashes.quantised(), workload.Seed(o.Seed), o.Pipeline
	c.Zipf, c.Turns, c.Active = cmp.Or(c.Zipf, 1.1), cmp.Or(c.Turns, 8), cmp.Or(c.Active, 4)
	if c.Prefixes == 0 {
		all := 0
		for _, n := range c.Hashes {
			all += max(n/2, 1)
		}
		c.Prefixes = max((o.Entries*len(c.Hashes)+all-1)/all, 1)
	}
	return &c
}

// conversations are what engines ask for, with the requests that store and evict it. Read-only
// once they are made.
type conversations struct {
	*workload.Conversations
	shapes  map[int]*shape
	parts   map[[2]int][]part // that store, or evict, the hashes between two
	entries int               // hashes of all prefixes
}

func newConversations(o Options, s *shaper) (*conversations, error) {
	c := &conversations{Conversations: workload.NewConversations(*o.Conversations), shapes: s.shapes, parts: map[[2]int][]part{}}
	for i := range c.NumPrefixes() {
		c.add(s, 0, len(c.Prefix(i))/hashLen)
		c.entries += len(c.Prefix(i)) / hashLen
	}
	var err error
	first := 0
	c.EachTurn(func(turn, prompt, stored, end int) {
		if turn == 0 {
			first = stored
		}
		c.add(s, stored, end)
		c.add(s, first, end)
		sh, failed := s.shape(prompt)
		if failed == nil {
			_, failed = s.miss(sh, stored)
		}
		err = cmp.Or(err, failed)
	})
	return c, err
}

func (c *conversations) add(s *shaper, from, to int) {
	if at := [2]int{from, to}; c.parts[at] == nil {
		c.parts[at] = s.stretch(from, to)
	}
}

// stored returns what is stored beforehand.
func (c *conversations) stored() []piece {
	pieces := make([]piece, c.NumPrefixes())
	for i := range pieces {
		prefix := c.Prefix(i)
		pieces[i] = piece{prefix, c.parts[[2]int{0, len(prefix) / hashLen}]}
	}
	return pieces
}

// engine makes the requests of one scheduler: a lookup, and then the store of what is new.
// When a conversation is over, it evicts what is its own, so the index does not grow.
type engine struct {
	c       *conversations
	engine  *workload.Engine
	turn    workload.Turn
	changes changes // that follow the lookup
}

// evicts tells whether the conversation of the turn is to be evicted yet.
func (e *engine) evicts() bool { return e.turn.Last && e.changes.tag == netproto.TagStore }

// next is a source that never ends.
func (e *engine) next(s *slot, parts [][]byte) ([][]byte, bool) {
	switch {
	case e.changes.left():
		parts = e.changes.next(s, parts)
	case e.evicts():
		first := len(e.turn.Prefix) / hashLen
		e.changes.begin(netproto.TagEvict, piece{e.turn.Own, e.c.parts[[2]int{first, first + len(e.turn.Own)/hashLen}]})
		parts = e.changes.next(s, parts)
	default:
		parts = e.ask(s, parts)
	}
	s.leads = e.changes.left() || e.evicts()
	return parts, true
}

// ask makes the lookup of the next turn.
func (e *engine) ask(s *slot, parts [][]byte) [][]byte {
	t := e.engine.Next()
	e.turn = t
	e.changes.begin(netproto.TagStore, piece{t.New(), e.c.parts[[2]int{t.Stored, t.Stored + len(t.New())/hashLen}]})
	shape := e.c.shapes[t.Prompt]
	s.tag, s.hashes, s.stored, s.expect = netproto.TagLookup, int32(t.Prompt), int32(t.Stored), shape.misses[t.Stored]
	return append(parts, shape.head, t.Prefix, t.Asked())
}
