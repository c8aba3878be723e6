package coordinator

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/hitline/hitline/netproto"
)

// Galloping asks a store in rounds for what can still change the answer.
//
// What nobody has asked yet is taken for stored, and the rules are applied to that,
// noting what they look at. If all of it has been asked, the answer is the one that
// asking everything would give: the rules cannot tell the difference. Otherwise that
// is what the next round asks, so each block of the final answer has been asked.
//
// The rules look at full attention from the left as far as it could be stored, and
// at the window, the chunk or the state in front of the end of that, so this alone
// is right but asks in vain for what lies behind an early gap, and takes many rounds
// where windows have many. Hence
//
//   - the first round asks only firstBlocks of the full-attention groups,
//   - few keys that could matter are asked at once,
//   - the last round asks everything that could matter, which is: everything up to
//     the end of the first full-attention group and what LookEnd adds; everything,
//     without such a group.
const (
	// firstBlocks is how many positions the first round asks, of all full-attention
	// groups together. A cold prompt costs no more.
	firstBlocks = 64
	// atOnce is how many positions are asked together rather than in two rounds: so
	// many keys cost a store less than another round trip.
	atOnce = 128
	// mostRounds is when everything that could matter has been asked; in pools
	// without full attention it is fewRounds. Only equal hashes in one request can
	// cost one more.
	mostRounds, fewRounds = 4, 2
)

// gallop is one lookup in rounds.
type gallop struct {
	c        *Coordinator
	tokenLen int64
	hashes   netproto.Hashes

	scratch  Scratch
	presence Presence   // stored, or not asked yet
	open     [][]uint64 // not asked yet
	reads    reads
	bound    int64 // tokens: the rules will not look behind it
}

// reads are the positions that the rules have looked at.
type reads struct {
	of   *gallop
	want [][]uint64 // those among them that decide and are open
	// unasked: a position was among them that no lookup asks, which equal hashes
	// may set.
	unasked bool
}

// note takes in that the rules have looked at positions of a view. A position that
// some member lacks is settled.
func (r *reads) note(v *view, from, to int) {
	for w := from / 64; w*64 < to; w++ {
		looked := ^uint64(0) >> (63 - min(63, to-1-w*64)) &^ (1<<max(0, from-w*64) - 1)
		set := v.word(w) & looked
		if set != looked {
			r.unasked = r.unasked || r.of.skips(v, w, looked&^set) // equal specs need not have equal masks
		}
		for _, g := range v.members {
			if w < len(r.want[g]) {
				r.want[g][w] |= r.of.open[g][w] & set
			}
		}
	}
}

// skips tells whether some of these positions of a word are among those that a
// lookup does not ask.
func (l *gallop) skips(v *view, w int, positions uint64) bool {
	for _, g := range v.members {
		mask := l.c.KeyMask(g)
		if mask.IsAll() {
			continue
		}
		for rest := positions; rest != 0; rest &= rest - 1 {
			if !mask.At(int64(w*64 + bits.TrailingZeros64(rest))) {
				return true
			}
		}
	}
	return false
}

var gallops = sync.Pool{New: func() any { return new(gallop) }}

// Gallop answers like Lookup and asks the store in rounds, each a call of Reserve and
// of Exists, until no further key can change the answer: at most four rounds, and for a
// full hit one more than Lookup. A first block that is stored nowhere costs 64
// positions at most. Each block of the answer has been asked.
//
// It equals Lookup over a store that gives equal answers to equal keys, and over one
// that always fails: a round that fails makes the answer 0. A wrong number of
// answers in any round is the error that it is in Lookup; those to keys that are not
// asked cannot be wrong.
func (c *Coordinator) Gallop(numTokens int64, hashes netproto.Hashes, store KeyStore) (int64, error) {
	if hashes.Len() == 0 || numTokens <= 0 {
		return 0, nil
	}
	tokenLen, err := c.TokenLen(numTokens)
	if err != nil {
		return 0, err
	}
	l := gallops.Get().(*gallop)
	defer l.release()
	if !l.begin(c, tokenLen, hashes) {
		return 0, nil
	}
	distinct := false // no two hashes are equal, or it is of no consequence
	for round := 1; ; round++ {
		hit, err := l.evaluate(numTokens)
		if l.reads.unasked && !distinct {
			if l.repeats() {
				return c.Lookup(numTokens, hashes, store)
			}
			distinct = true
		}
		if round == 1 {
			l.wantOne()
		}
		if l.numWanted() == 0 || round > 1 && l.nothing() {
			return hit, err
		}
		l.choose(round)
		b := l.countKeys()
		if store.Reserve(b.memory()) != nil {
			return 0, nil
		}
		answers, err := store.Exists(l.keys(&b))
		if err != nil {
			return 0, nil // a store that fails holds nothing
		}
		partly, err := l.take(answers)
		if err != nil {
			return 0, err
		}
		if partly && !distinct {
			if l.repeats() {
				return c.Lookup(numTokens, hashes, store)
			}
			distinct = true
		}
	}
}

// begin takes everything that a lookup asks for stored. It returns false if there
// is nothing to ask.
func (l *gallop) begin(c *Coordinator, tokenLen int64, hashes netproto.Hashes) bool {
	l.c, l.tokenLen, l.hashes = c, tokenLen, hashes
	l.presence.NumHashes, l.presence.reads = hashes.Len(), &l.reads
	l.reads.of = l
	any := false
	l.presence.Bits = resize(l.presence.Bits, len(c.groups))
	l.open = resize(l.open, len(c.groups))
	l.reads.want = resize(l.reads.want, len(c.groups))
	for g := range c.groups {
		words := (c.Positions(g, tokenLen, hashes.Len()) + 63) / 64
		for _, set := range []*[]uint64{&l.presence.Bits[g], &l.open[g], &l.reads.want[g]} {
			*set = resize(*set, words)
			clear(*set)
		}
		for from, to := range c.asked(g, tokenLen, hashes.Len()) {
			fillBits(l.open[g], from, to)
			any = true
		}
		copy(l.presence.Bits[g], l.open[g])
	}
	return any
}

// release gives l back, without what belongs to others.
func (l *gallop) release() {
	l.c, l.hashes, l.scratch.c = nil, netproto.Hashes{}, nil
	gallops.Put(l)
}

// evaluate applies the rules and notes what they look at, and how far they may.
func (l *gallop) evaluate(numTokens int64) (int64, error) {
	for _, want := range l.reads.want {
		clear(want)
	}
	l.reads.unasked = false
	hit, err := l.c.FindHit(&l.presence, l.tokenLen, true, &l.scratch)
	l.bound = l.tokenLen
	if l.c.attention[0].Kind.IsFull() {
		l.bound = min(l.bound, l.c.LookEnd(l.scratch.results[0].hit))
	}
	if err != nil {
		return 0, err
	}
	return l.c.leaveOne(&l.presence, hit, numTokens, &l.scratch)
}

// mayGrow tells whether the common hit can be longer than that of the first group.
func (c *Coordinator) mayGrow() bool {
	return c.rules.mambaPeeks && slices.ContainsFunc(c.attention, func(a attentionGroup) bool {
		return a.eagle && a.Kind == Mamba
	})
}

// nothing tells whether the first group's hit is 0 for certain and the common one
// with it: what EAGLE groups look at then, they give up.
func (l *gallop) nothing() bool {
	first := &l.c.attention[0]
	if !first.Kind.IsFull() || l.scratch.results[0].hit > 0 || l.c.mayGrow() {
		return false
	}
	for _, g := range first.members {
		if countBits(l.reads.want[g]) > 0 {
			return false
		}
	}
	return true
}

// repeats tells whether some group has equal hashes.
func (l *gallop) repeats() bool {
	for g := range l.c.groups {
		stride := l.c.KeyStride(g)
		if g > 0 && stride == l.c.KeyStride(g-1) {
			continue
		}
		if firsts(l.hashes, stride, l.hashes.Len()/stride) != nil {
			return true
		}
	}
	return false
}

// wantOne wants a position if the rules looked at none: a store that fails is
// noticed also by those who need nothing of it.
func (l *gallop) wantOne() {
	if l.numWanted() > 0 {
		return
	}
	for g, open := range l.open {
		for w, word := range open {
			if word != 0 {
				l.reads.want[g][w] = word & -word
				return
			}
		}
	}
}

func (l *gallop) numWanted() int {
	n := 0
	for _, want := range l.reads.want {
		n += countBits(want)
	}
	return n
}

// choose makes what is wanted what a round asks.
func (l *gallop) choose(round int) {
	full := l.c.attention[0].Kind.IsFull()
	rounds := fewRounds
	if full {
		rounds = mostRounds
	}
	switch {
	case round >= rounds || l.numOpen() <= atOnce:
		for g := range l.c.groups {
			below := l.below(g)
			for w, open := range l.open[g][:(below+63)/64] {
				l.reads.want[g][w] |= open & lowBits(below-64*w)
			}
		}
	case full && round == 1:
		l.chooseFirst()
	}
}

// below returns how many positions of group g the rules may look at.
func (l *gallop) below(g int) int {
	token := int64(l.c.KeyStride(g)) * int64(l.c.pool.HashBlockSize)
	return int(min(int64(l.c.Positions(g, l.tokenLen, l.hashes.Len())), l.bound/token))
}

// numOpen returns how many positions could be asked that the rules may look at.
func (l *gallop) numOpen() int {
	n := 0
	for g := range l.c.groups {
		below := l.below(g)
		words := l.open[g][:(below+63)/64]
		n += countBits(words)
		if len(words) > 0 {
			last := len(words) - 1
			n -= bits.OnesCount64(words[last] &^ lowBits(below-64*last))
		}
	}
	return n
}

// chooseFirst keeps the first wanted positions of the full-attention groups only, if
// there are any.
func (l *gallop) chooseFirst() {
	groups, left := 0, firstBlocks
	for g := range l.c.groups {
		if l.c.pool.Groups[g].Kind.IsFull() && countBits(l.reads.want[g]) > 0 {
			groups++
		}
		if l.c.mayGrow() { // and so must be asked something even then
			left -= int(l.c.lookahead/int64(l.c.pool.HashBlockSize)) / l.c.KeyStride(g)
		}
	}
	if groups == 0 {
		return
	}
	left = max(1, left)
	most := left
	for g := range l.c.groups {
		keep := 0
		if l.c.pool.Groups[g].Kind.IsFull() {
			keep = min(left, max(1, most/groups))
		}
		left -= keepFirst(l.reads.want[g], keep)
	}
}

// countKeys counts the keys of what is wanted.
func (l *gallop) countKeys() (b keyBuilder) {
	for g := range l.c.groups {
		b.need(l.c.groups[g].prefixes, countBits(l.reads.want[g]), l.hashes.HashLen())
	}
	return b
}

// keys returns the keys of what is wanted, in the reference's order.
func (l *gallop) keys(b *keyBuilder) []string {
	b.room()
	for g := range l.c.groups {
		prefixes, stride := l.c.groups[g].prefixes, l.c.KeyStride(g)
		for w, word := range l.reads.want[g] {
			for ; word != 0; word &= word - 1 {
				i := w*64 + bits.TrailingZeros64(word)
				b.add(prefixes, l.hashes.At(i*stride+stride-1))
			}
		}
	}
	return b.keys
}

// take takes the answers to these keys in. partly tells whether some block is
// stored on some of its ranks and not all, so that equal hashes would add up.
func (l *gallop) take(answers []int) (partly bool, err error) {
	if l.c.sumsRanks() {
		keys := 0
		for g := range l.c.groups {
			keys += countBits(l.reads.want[g]) * len(l.c.groups[g].ranks)
		}
		if len(answers) != keys {
			return false, answerCount(len(answers), keys)
		}
	}
	for g := range l.c.groups {
		ranks := len(l.c.groups[g].ranks)
		for w, want := range l.reads.want[g] {
			absent := uint64(0)
			for word := want; word != 0; word &= word - 1 {
				n, err := l.c.countOnes(answers, ranks)
				if err != nil {
					return false, err
				}
				answers = answers[min(ranks, len(answers)):]
				if n < ranks {
					absent |= word & -word
					partly = partly || n > 0
				}
			}
			l.presence.Bits[g][w] &^= absent
			l.open[g][w] &^= want
		}
	}
	return partly, nil
}

// resize returns s with n elements, what s held first and then anything.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// fillBits sets the bits from from to to, to excluded.
func fillBits(set []uint64, from, to int) {
	for from < to {
		n := min(64-from%64, to-from)
		set[from/64] |= ^uint64(0) >> (64 - n) << (from % 64)
		from += n
	}
}

// lowBits returns a word with the lowest n bits set, all of them from 64 on.
func lowBits(n int) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<max(0, n) - 1
}

func countBits(set []uint64) int {
	n := 0
	for _, word := range set {
		n += bits.OnesCount64(word)
	}
	return n
}

// keepFirst clears all but the first n bits that are set, and returns how many are
// left.
func keepFirst(set []uint64, n int) int {
	kept := 0
	for w, word := range set {
		rest := word
		for ; rest != 0 && kept < n; kept++ {
			rest &= rest - 1
		}
		set[w] = word &^ rest
	}
	return kept
}
