package coordinator

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/hitline/hitline/internal/requesterror"
)

// A galloping lookup checks keys in rounds, until no further key can change the answer.
//
// A position is undetermined until its keys are checked. Undetermined positions count as
// present. The rules are applied to this presence, and the positions that they read are
// recorded. If all of these are determined, the answer is final: the rules cannot tell the
// difference. Otherwise the next round checks the undetermined ones among them.
// So the keys of each block of the final answer have been checked.
//
// That alone is right but slow. It checks in vain what lies behind an early gap of full
// attention, and takes many rounds if a window has many gaps. Hence
//
//   - the first round checks only firstRound positions of the full-attention groups,
//   - one round checks all undetermined positions that can matter if at most
//     smallRound are left,
//   - the last round checks every undetermined position that can matter: those up to
//     LookEnd of the first full-attention group, or all if there is no such group.
const (
	// firstRound is the number of positions that the first round checks, of all
	// full-attention groups together. A cold prompt costs no more, unless it has at
	// most smallRound positions.
	firstRound = 64
	// smallRound is the number of positions that one round checks rather than two:
	// their keys cost a store less than another round trip.
	smallRound = 128
	// The last round is the one of this number, in pools with and without full
	// attention.
	maxRounds, maxRoundsWithoutFull = 4, 2
)

// gallop is one lookup in rounds. It belongs to one goroutine.
type gallop struct {
	c         *Coordinator
	tokenLen  int64
	hashes    Hashes
	first     int // number of the first of hashes, counted from the beginning of the prompt
	numHashes int // of the prompt, those before first included

	scratch      Scratch
	presence     Presence   // the undetermined positions count as present
	undetermined [][]uint64 // bits by group: keys to check that are not checked yet
	reads        reads
	bound        int64 // tokens: presence beyond it does not matter
}

// reads are the positions that the rules read in one evaluation.
type reads struct {
	of     *gallop
	wanted [][]uint64 // bits by group: the undetermined ones, which the next round checks
}

// record records that the rules have read the positions [from, to) of a view. A position
// that is absent for some member is determined.
func (r *reads) record(v *view, from, to int) {
	for w := from / 64; w*64 < to; w++ {
		read := ^uint64(0) >> (63 - min(63, to-1-w*64)) &^ (1<<max(0, from-w*64) - 1)
		set := v.word(w) & read
		for _, g := range v.members {
			if w < len(r.wanted[g]) {
				r.wanted[g][w] |= r.of.undetermined[g][w] & set
			}
		}
	}
}

var gallops = sync.Pool{New: func() any { return new(gallop) }}

// Gallop returns the hit of a lookup of numTokens over an external store. It checks keys in rounds,
// each a call of Reserve and one of Exists, until no further key can change the answer. It begins
// at the start of the hashes: see CheckStart. There are at most four rounds; a full hit takes at
// most two. The keys of each block of the hit have been checked. If a full-attention group lacks
// the first block, Gallop checks the keys of at most 64 positions, or of 128 if the lookup has no
// more. (Reference: MooncakeStoreWorker.lookup.)
//
// If Reserve or Exists fails in any round, the hit is 0 without an error, as in the reference:
// the store must record its failure itself. Up to 0.24.0 a wrong number of answers is
// ErrAnswerCount. From 0.25.0 on too many are ignored, and too few are ErrIndexOutOfRange if the
// missing one is read. The other errors are those of Answer.
func (c *Coordinator) Gallop(numTokens int64, hashes Hashes, store KeyStore) (Hit, error) {
	l, err := c.newGallop(numTokens, hashes)
	if l == nil {
		return Hit{}, err
	}
	defer l.release()
	for round := 1; ; {
		hit, err := l.evaluate(numTokens)
		if round == 1 {
			l.wantAny()
			l.useKnown(store, firstRound)
		}
		if l.numWanted() == 0 || round > 1 && l.hitIsZero() {
			return ownHit(hit), err
		}
		l.chooseRound(round)
		if l.useKnown(store, math.MaxInt); l.numWanted() == 0 {
			continue
		}
		round++
		answers, err := l.exists(store)
		if err != nil {
			return Hit{}, nil // a store that fails holds nothing
		}
		if err := l.applyAnswers(answers); err != nil {
			return Hit{}, err
		}
		l.tellFound(store)
	}
}

// Lookup is Gallop in one round: it asks for all keys, in the reference's order.
func (c *Coordinator) Lookup(numTokens int64, hashes Hashes, store KeyStore) (Hit, error) {
	l, err := c.newGallop(numTokens, hashes)
	if l == nil {
		return Hit{}, err
	}
	defer l.release()
	l.wantAll()
	if l.useKnown(store, math.MaxInt); l.numWanted() > 0 {
		answers, err := l.exists(store)
		if err != nil {
			return Hit{}, nil // a store that fails holds nothing
		}
		if err := l.applyAnswers(answers); err != nil {
			return Hit{}, err
		}
		l.tellFound(store)
	}
	hit, err := l.evaluate(numTokens)
	return ownHit(hit), err
}

// ownHit returns hit with tail boundaries of its own, which are the gallop's.
func ownHit(hit Hit) Hit {
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries)
	return hit
}

// newGallop returns a lookup whose positions from the start on are all undetermined. It returns nil
// if the hit is 0 whatever is stored. The caller must release it.
func (c *Coordinator) newGallop(numTokens int64, hashes Hashes) (*gallop, error) {
	if err := c.CheckStart(hashes.Start(), max(0, numTokens)); err != nil {
		return nil, err
	}
	if c.NumHashes(hashes) == 0 || numTokens <= 0 {
		return nil, nil //nolint:nilnil // nothing to look up is no error
	}
	tokenLen, err := c.TokenLen(numTokens)
	if err != nil {
		return nil, err
	}
	l := gallops.Get().(*gallop)
	if !l.begin(c, tokenLen, hashes) {
		l.release()
		return nil, nil //nolint:nilnil // likewise
	}
	return l, nil
}

// begin makes all positions whose keys a lookup checks undetermined, and those before its start
// present. It returns false if there are none.
func (l *gallop) begin(c *Coordinator, tokenLen int64, hashes Hashes) bool {
	l.c, l.tokenLen, l.hashes = c, tokenLen, hashes
	l.numHashes = c.NumHashes(hashes)
	l.first = l.numHashes - hashes.Len()
	if !c.hasKeys(tokenLen, l.numHashes) {
		return false
	}
	l.presence.NumHashes, l.presence.reads = l.numHashes, &l.reads
	l.reads.of = l
	l.presence.Bits = resize(l.presence.Bits, len(c.groups))
	l.undetermined = resize(l.undetermined, len(c.groups))
	l.reads.wanted = resize(l.reads.wanted, len(c.groups))
	for g := range c.groups {
		words := (c.Positions(g, tokenLen, l.numHashes) + 63) / 64
		for _, set := range []*[]uint64{&l.presence.Bits[g], &l.undetermined[g], &l.reads.wanted[g]} {
			*set = resize(*set, words)
			clear(*set)
		}
		for from, to := range l.keyRuns(g) {
			setBits(l.undetermined[g], from, to)
		}
		c.SetStart(l.presence.Bits[g], g, hashes.Start())
		for w, word := range l.undetermined[g] {
			l.presence.Bits[g][w] |= word
		}
	}
	return true
}

// keyRuns iterates over the runs of positions of group g whose keys the lookup checks.
func (l *gallop) keyRuns(g int) iter.Seq2[int, int] {
	return l.c.keyRuns(g, l.c.positionsBefore(g, l.hashes.Start()), l.tokenLen, l.numHashes)
}

// release returns l to the pool, without references to what it does not own.
func (l *gallop) release() {
	l.c, l.hashes, l.scratch.c = nil, Hashes{}, nil
	gallops.Put(l)
}

// evaluate applies the rules to the presence. It sets reads and bound, and returns the
// answer as far as it is determined.
func (l *gallop) evaluate(numTokens int64) (Hit, error) {
	for _, wanted := range l.reads.wanted {
		clear(wanted)
	}
	tokens, err := l.c.FindHit(&l.presence, l.tokenLen, true, &l.scratch)
	l.bound = l.tokenLen
	if l.c.attention[0].Kind.IsFull() {
		l.bound = min(l.bound, l.c.LookEnd(l.scratch.results[0].hit))
	}
	if err != nil {
		return Hit{}, err
	}
	return l.c.finishHit(&l.presence, tokens, numTokens, &l.scratch)
}

// hitMayGrow reports whether the common hit can be longer than that of the first group.
func (c *Coordinator) hitMayGrow() bool {
	return c.rules.mambaLookahead && slices.ContainsFunc(c.attention, func(a attentionGroup) bool {
		return a.eagle && a.Kind == Mamba
	})
}

// hitIsZero reports whether the first group's hit is determined to be 0, and so the common
// hit. Eagle groups then still read a block, but drop it.
func (l *gallop) hitIsZero() bool {
	first := &l.c.attention[0]
	if !first.Kind.IsFull() || l.scratch.results[0].hit > 0 || l.c.hitMayGrow() {
		return false
	}
	for _, g := range first.members {
		if countBits(l.reads.wanted[g]) > 0 {
			return false
		}
	}
	return true
}

// wantAll makes all undetermined positions wanted.
func (l *gallop) wantAll() {
	for g, undetermined := range l.undetermined {
		copy(l.reads.wanted[g], undetermined)
	}
}

// wantAny makes some undetermined position wanted if none is. As in Lookup every request
// then calls the store, and notices that it fails.
func (l *gallop) wantAny() {
	if l.numWanted() > 0 {
		return
	}
	for g, undetermined := range l.undetermined {
		for w, word := range undetermined {
			if word != 0 {
				l.reads.wanted[g][w] = word & -word
				return
			}
		}
	}
}

// numWanted returns the number of wanted positions.
func (l *gallop) numWanted() int {
	n := 0
	for _, wanted := range l.reads.wanted {
		n += countBits(wanted)
	}
	return n
}

// chooseRound extends or limits the wanted positions to those that this round checks.
func (l *gallop) chooseRound(round int) {
	full := l.c.attention[0].Kind.IsFull()
	rounds := maxRoundsWithoutFull
	if full {
		rounds = maxRounds
	}
	switch {
	case round >= rounds || l.numUndetermined() <= smallRound:
		l.wantReadable()
	case full && round == 1:
		l.chooseFirstRound()
	}
}

// wantReadable makes all undetermined positions wanted that the rules may read.
func (l *gallop) wantReadable() {
	for g := range l.c.groups {
		n := l.numReadable(g)
		for w, word := range l.undetermined[g][:(n+63)/64] {
			l.reads.wanted[g][w] |= word & lowBits(n-64*w)
		}
	}
}

// numReadable returns the number of leading positions of group g, up to bound, that the
// rules may read.
func (l *gallop) numReadable(g int) int {
	positionTokens := int64(l.c.KeyStride(g)) * int64(l.c.pool.HashBlockSize)
	return int(min(int64(l.c.Positions(g, l.tokenLen, l.numHashes)), l.bound/positionTokens))
}

// numUndetermined returns the number of undetermined positions that the rules may read.
func (l *gallop) numUndetermined() int {
	n := 0
	for g := range l.c.groups {
		readable := l.numReadable(g)
		words := l.undetermined[g][:(readable+63)/64]
		n += countBits(words)
		if len(words) > 0 {
			last := len(words) - 1
			n -= bits.OnesCount64(words[last] &^ lowBits(readable-64*last))
		}
	}
	return n
}

// chooseFirstRound limits the wanted positions to the first ones of the full-attention
// groups, if those have any.
func (l *gallop) chooseFirstRound() {
	groups, left := 0, firstRound
	for g := range l.c.groups {
		if l.c.groups[g].Kind.IsFull() && countBits(l.reads.wanted[g]) > 0 {
			groups++
		}
		if l.c.hitMayGrow() { // a missing first block then leaves these positions to check
			left -= int(l.c.lookahead/int64(l.c.pool.HashBlockSize)) / l.c.KeyStride(g)
		}
	}
	if groups == 0 {
		return
	}
	left = max(1, left)
	budget := left
	for g := range l.c.groups {
		keep := 0
		if l.c.groups[g].Kind.IsFull() {
			keep = min(left, max(1, budget/groups))
		}
		left -= keepFirst(l.reads.wanted[g], keep)
	}
}

// exists asks the store for the keys of the wanted positions. An error is the store's.
func (l *gallop) exists(store KeyStore) (answers []int, err error) {
	b := l.countKeys()
	if err := store.Reserve(b.memory()); err != nil {
		return nil, err
	}
	return store.Exists(l.buildKeys(&b, store))
}

// countKeys returns a builder with the size of the keys of the wanted positions.
func (l *gallop) countKeys() (b keyBuilder) {
	for g := range l.c.groups {
		b.addSize(l.c.groups[g].prefixes, countBits(l.reads.wanted[g]), l.hashes.HashLen())
	}
	return b
}

// buildKeys returns the keys of the wanted positions, in the reference's order: by group,
// position, rank.
func (l *gallop) buildKeys(b *keyBuilder, store KeyStore) []string {
	b.alloc()
	built := 0 // hashes since the last pause
	for g := range l.c.groups {
		prefixes, stride := l.c.groups[g].prefixes, l.c.KeyStride(g)
		for w, word := range l.reads.wanted[g] {
			if built >= PauseEvery {
				built = 0
				store.Pause()
			}
			for ; word != 0; word &= word - 1 {
				built++
				i := w*64 + bits.TrailingZeros64(word)
				b.add(prefixes, l.hashes.At(KeyIndex(i, stride)-l.first))
			}
		}
	}
	return b.keys
}

// applyAnswers determines the wanted positions by the answers to their keys.
func (l *gallop) applyAnswers(answers []int) error {
	if l.c.rules.exactAnswers {
		keys := 0
		for g := range l.c.groups {
			keys += countBits(l.reads.wanted[g]) * len(l.c.groups[g].ranks)
		}
		if len(answers) != keys {
			return requesterror.New(ErrAnswerCount, "the store gave %d answers for %d keys", len(answers), keys)
		}
	}
	for g := range l.c.groups {
		ranks := len(l.c.groups[g].ranks)
		for w, wanted := range l.reads.wanted[g] {
			absent := uint64(0)
			for word := wanted; word != 0; word &= word - 1 {
				complete, err := onAllRanks(answers, ranks)
				if err != nil {
					return err
				}
				answers = answers[min(ranks, len(answers)):]
				if !complete {
					absent |= word & -word
				}
			}
			l.presence.Bits[g][w] &^= absent
			l.undetermined[g][w] &^= wanted
		}
	}
	return nil
}

// onAllRanks reports whether all ranks hold a block. The answers begin with those of the
// block. It fails if they end before one that is not 1.
func onAllRanks(answers []int, ranks int) (bool, error) {
	for i := range ranks {
		if i >= len(answers) {
			return false, requesterror.New(ErrIndexOutOfRange, "the store gave too few answers")
		}
		if answers[i] != 1 {
			return false, nil
		}
	}
	return true, nil
}
