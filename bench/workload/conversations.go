package workload

import (
	"cmp"
	"math/rand/v2"

	"github.com/hitline/hitline/bench/measure"
)

// ConversationOptions says what conversations are like.
type ConversationOptions struct {
	// Hashes are the lengths of whole conversations, in hashes: prompts and answers of
	// all turns and the prefix. Prefixes have them in turn.
	Hashes   []int
	Prefixes int     // shared by all engines
	Zipf     float64 // exponent of the prefixes' popularity, above 1; the larger, the fewer are asked for
	Turns    int     // of a conversation
	Active   int     // conversations that an engine has under way
	Seed     Seed
	// Pipeline is how many turns of an engine may be under way: their hashes stay as
	// they are until that many later ones have been taken.
	Pipeline int
}

// Bounds of options.
const (
	// MaxPrefixes bounds the prefixes.
	MaxPrefixes = 1_000_000
	// MaxZipf is an exponent at which all but one prompt in a million have the same prefix.
	MaxZipf = 20.0
	// MaxTurns bounds the turns of a conversation.
	MaxTurns = 10_000
	// MaxActive bounds the conversations that an engine has under way.
	MaxActive = 10_000
)

// Check returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o ConversationOptions) Check() error {
	err := cmp.Or(
		measure.CheckRange("prefixes", o.Prefixes, 1, MaxPrefixes),
		measure.CheckRange("turns", o.Turns, 1, MaxTurns),
		measure.CheckRange("conversations under way", o.Active, 1, MaxActive),
	)
	if err == nil && !(o.Zipf > 1 && o.Zipf <= MaxZipf) {
		err = measure.BadOptions("a Zipf exponent of %v; give more than 1, and at most %v", o.Zipf, MaxZipf)
	}
	for _, hashes := range o.Hashes {
		if least := 2 * (o.Turns + 1); err == nil && (hashes < least || hashes > MaxHashes) {
			err = measure.BadOptions("conversations of %d hashes; give %d to %d for %d turns", hashes, least, MaxHashes, o.Turns)
		}
	}
	return err
}

// Conversations are the requests of schedulers, which are called engines. A prompt begins with a
// prefix (a system prompt, a document), which all engines have in common and whose
// popularity follows Zipf's law. A conversation belongs to one engine and has a prefix:
// half of its hashes. The others come in equal parts turn by turn: first those of the
// question, then those of the answer. An engine looks up prefix, history and question,
// and when it has answered it stores what is new. After its last turn the conversation
// is gone, and another one begins.
//
// Prefixes are stored beforehand, and nobody else stores the hashes of a conversation:
// so what a lookup must hit is known exactly, if nothing is evicted. Equal options make
// equal conversations. Safe for concurrent use once it is made; an [Engine] is not.
type Conversations struct {
	o        ConversationOptions
	prefixes [][]byte
}

// NewConversations makes the prefixes. The options have been checked.
func NewConversations(o ConversationOptions) *Conversations {
	c := &Conversations{o: o, prefixes: make([][]byte, o.Prefixes)}
	for i := range c.prefixes {
		c.prefixes[i] = make([]byte, o.prefixLen(i)*HashLen)
		_, _ = o.Seed.Bytes(forPrefixes, uint64(i)).Read(c.prefixes[i]) // never fails
	}
	return c
}

// length returns the hashes of a conversation with a prefix.
func (o ConversationOptions) length(prefix int) int { return o.Hashes[prefix%len(o.Hashes)] }

func (o ConversationOptions) prefixLen(prefix int) int { return o.length(prefix) / 2 }

// until returns the hashes of a conversation after the given number of turns.
func (o ConversationOptions) until(prefix, turns int) int {
	first := o.prefixLen(prefix)
	return first + (o.length(prefix)-first)*turns/o.Turns
}

// prompt returns the hashes that a turn looks up: all before it and its question, which is
// the larger half of what it adds.
func (o ConversationOptions) prompt(prefix, turn int) int {
	before := o.until(prefix, turn)
	return before + (o.until(prefix, turn+1)-before+1)/2
}

// NumPrefixes returns how many prefixes there are to be stored.
func (c *Conversations) NumPrefixes() int { return len(c.prefixes) }

// Prefix returns the hashes of a prefix, joined, to be read only.
func (c *Conversations) Prefix(i int) []byte { return c.prefixes[i] }

// EachTurn calls f with the turns, from 0, of conversations of all lengths: how many hashes
// the prompt has, how many of them are stored, and how many are when it has been answered.
// The turns of a conversation come in order. It may name one twice.
func (c *Conversations) EachTurn(f func(turn, prompt, stored, end int)) {
	for i := range min(len(c.o.Hashes), c.o.Prefixes) {
		for turn := range c.o.Turns {
			f(turn, c.o.prompt(i, turn), c.o.until(i, turn), c.o.until(i, turn+1))
		}
	}
}

// Turn is one request of an engine, of which everything is in hashes.
type Turn struct {
	Prefix []byte // the first hashes of the conversation, joined
	Own    []byte // the others, the turn's answer included
	Prompt int    // leading hashes of both that are looked up
	Stored int    // leading hashes of both that are stored: what must be answered
	Last   bool   // the conversation is over, and nobody asks for Own any more
}

// New returns the hashes to store after the lookup: all from Stored on.
func (t Turn) New() []byte { return t.Own[t.Stored*HashLen-len(t.Prefix):] }

// Asked returns the hashes of Own that are looked up, behind those of Prefix.
func (t Turn) Asked() []byte { return t.Own[:t.Prompt*HashLen-len(t.Prefix)] }

// Engine makes the requests of one engine. Not safe for concurrent use.
type Engine struct {
	c       *Conversations
	random  *rand.Rand
	popular *rand.Zipf
	fresh   *rand.ChaCha8 // hashes
	active  []conversation
	turns   int       // that were made
	free    []retired // from the oldest on
}

// conversation is one that is under way.
type conversation struct {
	prefix int
	turn   int // the next one
	own    []byte
}

// retired is the memory of a conversation that is over.
type retired struct {
	own []byte
	at  int // how many turns had been made
}

// Engine returns the source of an engine's requests. Each number is another engine.
func (c *Conversations) Engine(number int) *Engine {
	e := &Engine{
		c: c, random: c.o.Seed.Rand(forConversations, 2*uint64(number)), fresh: c.o.Seed.Bytes(forConversations, 2*uint64(number)+1),
		active: make([]conversation, c.o.Active),
	}
	e.popular = rand.NewZipf(e.random, c.o.Zipf, 1, uint64(c.o.Prefixes-1))
	for i := range e.active {
		e.begin(&e.active[i])
	}
	return e
}

// begin begins a conversation.
func (e *Engine) begin(v *conversation) {
	v.prefix, v.turn, v.own = int(e.popular.Uint64()), 0, nil
	size := (e.c.o.length(v.prefix) - e.c.o.prefixLen(v.prefix)) * HashLen
	if len(e.free) > 0 && e.turns-e.free[0].at > e.c.o.Pipeline {
		if cap(e.free[0].own) >= size {
			v.own = e.free[0].own[:0]
		}
		e.free = e.free[1:]
	}
	if v.own == nil {
		v.own = make([]byte, 0, size)
	}
}

// Next returns the next request: a turn of any of the conversations. Its hashes are
// borrowed until ConversationOptions.Pipeline later ones have been taken.
func (e *Engine) Next() Turn {
	v, o := &e.active[e.random.IntN(len(e.active))], e.c.o
	t := Turn{Prefix: e.c.prefixes[v.prefix], Prompt: o.prompt(v.prefix, v.turn), Stored: o.until(v.prefix, v.turn)}
	v.turn++
	was := len(v.own)
	v.own = v.own[:o.until(v.prefix, v.turn)*HashLen-len(t.Prefix)]
	_, _ = e.fresh.Read(v.own[was:]) // never fails
	t.Own = v.own
	e.turns++
	if t.Last = v.turn == o.Turns; t.Last {
		e.free = append(e.free, retired{v.own, e.turns})
		e.begin(v)
	}
	return t
}
