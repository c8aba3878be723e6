package coordinator

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/hitline/hitline/internal/requesterror"
)

// A lookup over a store checks keys in rounds, until no further key can change the answer.
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
//   - the first round checks only firstRound positions of the full-attention groups, and those that are likely to
//     be stored,
//   - one round checks all undetermined positions that can matter if at most
//     smallRound are left,
//   - the last round checks every undetermined position that can matter: those up to
//     LookEnd of the first full-attention group, or all if there is no such group.
const (
	// firstRound is the number of positions that the first round checks, of all
	// full-attention groups together, behind those that are likely to be stored. A cold prompt
	// costs no more, unless it has at most smallRound positions.
	firstRound = 64
	// smallRound is the number of positions that one round checks rather than two:
	// their keys cost a store less than another round trip.
	smallRound = 192
	// The last round is the one of this number, in pools with and without full
	// attention.
	maxRounds, maxRoundsWithoutFull = 4, 2
)

// storeLookup is one lookup in rounds. It belongs to one goroutine. Its hashes and positions are counted
// from the start of the lookup, which is an edge of blocks of all groups.
type storeLookup struct {
	c        *Coordinator
	tokenLen int64
	hashes   Hashes
	likely   int  // leading hashes whose blocks are likely to be stored
	stops    bool // the store need not answer what does not matter behind a gap
	answered bool // the store has answered all that it was asked

	scratch      Scratch
	presence     Presence   // the undetermined positions count as present
	undetermined [][]uint64 // bits by group: keys to check that are not checked yet
	wanted       [][]uint64 // bits by group: those that the next round checks
	bound        int64      // tokens: presence beyond it does not matter
}

var storeLookups = sync.Pool{New: func() any {
	l := new(storeLookup)
	l.presence.onRead = l.record
	return l
}}

// record makes the undetermined positions wanted that the rules have read: see Presence.onRead. A position
// that is absent for some member is determined.
func (l *storeLookup) record(members []int, from, to int) {
	words := len(l.wanted[members[0]]) // as of the other members
	for w := max(0, from) / 64; w < words && w*64 < to; w++ {
		read := lowBits(to-w*64) &^ lowBits(from-w*64)
		for _, g := range members {
			read &= l.presence.Bits[g][w]
		}
		for _, g := range members {
			l.wanted[g][w] |= l.undetermined[g][w] & read
		}
	}
}

// Lookup returns the hit of a lookup of numTokens over an external store. It checks keys in rounds,
// each a call of Reserve and one of Exists, until no further key can change the answer. It begins
// at the start of the hashes: see CheckStart. There are at most four rounds; a full hit takes at
// most two. The keys of each block of the hit have been checked. If a full-attention group lacks
// the first block, Lookup checks the keys of at most 64 positions, or of 192 if the lookup has no
// more. (Reference: MooncakeStoreWorker.lookup.)
//
// If Reserve or Exists fails in any round, the hit is 0 without an error, as in the reference:
// the store must record its failure itself. Up to 0.24.0 a wrong number of answers is
// ErrAnswerCount. From 0.25.0 on too many are ignored, and too few are ErrIndexOutOfRange if the
// missing one is read. The other errors are those of Answer.
func (c *Coordinator) Lookup(numTokens int64, hashes Hashes, store KeyStore) (Hit, error) {
	hit, _, err := c.LookupEnding(numTokens, hashes, store)
	return hit, err
}

// LookupEnding is Lookup with the ending of the hit.
func (c *Coordinator) LookupEnding(numTokens int64, hashes Hashes, store KeyStore) (Hit, Ending, error) {
	l, err := c.newStoreLookup(numTokens, hashes)
	if l == nil {
		return Hit{}, c.nothingFound(hashes), err
	}
	defer l.release()
	hit, err := l.lookUp(numTokens, store)
	if err != nil || !l.answered {
		return Hit{}, Ending{Failed: true, Group: -1}, err
	}
	return hit, l.ending(hit, numTokens), nil
}

// lookUp checks keys in rounds.
func (l *storeLookup) lookUp(numTokens int64, store KeyStore) (Hit, error) {
	c := l.c
	l.stops = c.attention[0].Kind.IsFull()
	l.likely = min(store.Expected(), l.hashes.Len())
	first := firstRound + l.numLikely()
	for round := 1; ; {
		hit, err := l.evaluate(numTokens)
		if round == 1 {
			l.wantAny()
			l.useRemembered(store, first)
		}
		if l.numWanted() == 0 || round > 1 && l.hitIsZero() {
			l.answered = true
			return ownHit(hit), err
		}
		l.chooseRound(round, first)
		if l.useRemembered(store, math.MaxInt); l.numWanted() == 0 {
			continue
		}
		round++
		if _, storeErr, err := l.exists(store); storeErr != nil || err != nil {
			return Hit{}, err // a store that fails holds nothing
		}
		l.remember(store)
	}
}

// ownHit returns hit with tail boundaries of its own, which are the lookup's.
func ownHit(hit Hit) Hit {
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries)
	return hit
}

// newStoreLookup returns a lookup whose positions from the start on are all undetermined. It returns nil
// if the hit is 0 whatever is stored. The caller must release it.
func (c *Coordinator) newStoreLookup(numTokens int64, hashes Hashes) (*storeLookup, error) {
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
	l := storeLookups.Get().(*storeLookup)
	if !l.begin(c, tokenLen, hashes) {
		l.release()
		return nil, nil //nolint:nilnil // likewise
	}
	return l, nil
}

// begin makes all positions whose keys a lookup checks undetermined. It returns false if there are none.
func (l *storeLookup) begin(c *Coordinator, tokenLen int64, hashes Hashes) bool {
	l.c, l.tokenLen, l.hashes, l.stops, l.answered = c, tokenLen, hashes, false, false
	l.presence.NumHashes, l.presence.Start = c.NumHashes(hashes), hashes.Start()
	if !c.hasKeys(tokenLen, l.presence.NumHashes) {
		return false
	}
	l.presence.Bits = resize(l.presence.Bits, len(c.groups))
	l.undetermined = resize(l.undetermined, len(c.groups))
	l.wanted = resize(l.wanted, len(c.groups))
	for g := range c.groups {
		words := (l.positions(g) + 63) / 64
		for _, set := range []*[]uint64{&l.presence.Bits[g], &l.undetermined[g], &l.wanted[g]} {
			*set = resize(*set, words)
			clear(*set)
		}
		for from, to := range l.keyRuns(g) {
			SetBits(l.undetermined[g], from, to)
		}
		copy(l.presence.Bits[g], l.undetermined[g])
	}
	return true
}

// positions returns the number of positions of group g that the lookup covers.
func (l *storeLookup) positions(g int) int {
	return l.c.Positions(g, l.tokenLen, l.presence.NumHashes) - l.c.FirstPosition(g, l.presence.Start)
}

// keyRuns iterates over the runs [from, to) of positions of group g whose keys the lookup checks.
func (l *storeLookup) keyRuns(g int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		first := l.c.FirstPosition(g, l.presence.Start)
		mask, end := l.c.KeyMask(g).From(int64(first)), int64(l.positions(g))
		for at := int64(0); ; {
			from, to, ok := mask.Next(at)
			if at = min(to, end); !ok || from >= end || !yield(int(from), int(at)) {
				return
			}
		}
	}
}

// release returns l to the pool, without references to what it does not own.
func (l *storeLookup) release() {
	l.c, l.hashes, l.scratch.c = nil, Hashes{}, nil
	storeLookups.Put(l)
}

// evaluate applies the rules to the presence. It sets wanted and bound, and returns the
// answer as far as it is determined.
func (l *storeLookup) evaluate(numTokens int64) (Hit, error) {
	for _, wanted := range l.wanted {
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
func (l *storeLookup) hitIsZero() bool {
	first := &l.c.attention[0]
	if !first.Kind.IsFull() || l.scratch.results[0].hit > 0 || l.c.hitMayGrow() {
		return false
	}
	for _, g := range first.members {
		if countBits(l.wanted[g]) > 0 {
			return false
		}
	}
	return true
}

// wantAll makes all undetermined positions wanted.
func (l *storeLookup) wantAll() {
	for g, undetermined := range l.undetermined {
		copy(l.wanted[g], undetermined)
	}
}

// wantAny makes some undetermined position wanted if none is. Every request then calls the store, and
// notices that it fails.
func (l *storeLookup) wantAny() {
	if l.numWanted() > 0 {
		return
	}
	for g, undetermined := range l.undetermined {
		for w, word := range undetermined {
			if word != 0 {
				l.wanted[g][w] = word & -word
				return
			}
		}
	}
}

// numWanted returns the number of wanted positions.
func (l *storeLookup) numWanted() int {
	n := 0
	for _, wanted := range l.wanted {
		n += countBits(wanted)
	}
	return n
}

// numLikely returns how many positions of the full-attention groups are likely to be stored.
func (l *storeLookup) numLikely() (positions int) {
	for g := range l.c.groups {
		if l.c.groups[g].Kind.IsFull() {
			positions += l.likely / l.c.KeyStride(g)
		}
	}
	return positions
}

// chooseRound extends or limits the wanted positions to those that this round checks. The first one checks so many of full attention.
func (l *storeLookup) chooseRound(round, first int) {
	full := l.c.attention[0].Kind.IsFull()
	rounds := maxRoundsWithoutFull
	if full {
		rounds = maxRounds
	}
	switch {
	case round >= rounds || l.numUndetermined() <= smallRound:
		l.wantReadable()
	case full && round == 1:
		l.chooseFirstRound(first)
	}
}

// wantReadable makes all undetermined positions wanted that the rules may read.
func (l *storeLookup) wantReadable() {
	for g := range l.c.groups {
		n := l.numReadable(g)
		for w, word := range l.undetermined[g][:(n+63)/64] {
			l.wanted[g][w] |= word & lowBits(n-64*w)
		}
	}
}

// numReadable returns the number of leading positions of group g, up to bound, that the
// rules may read.
func (l *storeLookup) numReadable(g int) int {
	positionTokens := int64(l.c.KeyStride(g)) * int64(l.c.pool.HashBlockSize)
	return int(max(0, min(int64(l.positions(g)), (l.bound-l.presence.Start)/positionTokens)))
}

// numUndetermined returns the number of undetermined positions that the rules may read.
func (l *storeLookup) numUndetermined() int {
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
// groups, if those have any: in each group those that are likely to be stored, and as many more as in the others.
func (l *storeLookup) chooseFirstRound(left int) {
	groups := 0
	for g := range l.c.groups {
		if l.c.groups[g].Kind.IsFull() && countBits(l.wanted[g]) > 0 {
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
	budget := left - l.numLikely()
	for g := range l.c.groups {
		keep := 0
		if l.c.groups[g].Kind.IsFull() {
			keep = min(left, l.likely/l.c.KeyStride(g)+max(1, budget/groups))
		}
		left -= keepFirst(l.wanted[g], keep)
	}
}

// exists asks the store for the keys of the wanted positions, and determines those that it
// answers. The first error is the store's.
func (l *storeLookup) exists(store KeyStore) (answers []int, storeErr, err error) {
	numHashes, numKeys, memory := l.countKeys()
	if err := store.Reserve(memory); err != nil {
		return nil, err, nil
	}
	keys := l.buildKeys(numHashes, numKeys)
	if answers, err = store.Exists(keys); err != nil {
		return nil, err, nil
	}
	return answers, nil, l.applyAnswers(keys, answers)
}

// countKeys returns the numbers of wanted positions and of their keys, and what the keys take in bytes.
func (l *storeLookup) countKeys() (numHashes, numKeys int, memory int64) {
	for g := range l.c.groups {
		n := countBits(l.wanted[g])
		if n == 0 {
			continue
		}
		numHashes += n
		numKeys += n * len(l.c.groups[g].prefixes)
		for _, prefix := range l.c.groups[g].prefixes {
			memory += int64(n) * KeyBytes(prefix, l.hashes.HashLen())
		}
	}
	return numHashes, numKeys, memory
}

// sectionHashes is the number of hashes whose positions are asked together: those of each group in turn. What
// matters after a gap is known to a section.
const sectionHashes = 512

// buildKeys returns the keys of the wanted positions. In a lookup that stops at gaps they are in the
// order of sections, group, position, rank, otherwise in the reference's: group, position, rank.
func (l *storeLookup) buildKeys(numHashes, numKeys int) *Keys {
	keys := newKeys(l.c.prefixes, numHashes, numKeys, l.hashes.HashLen())
	if l.stops {
		keys.coord, keys.numHashes = l.c, l.hashes.Len()
		keys.positions = make([]uint32, 0, numHashes)
		keys.starts = make([]int, 0, l.hashes.Len()/l.c.sectionHashes+2)
	}
	for from, to := range l.sections() {
		keys.starts = append(keys.starts, keys.Len())
		for g := range l.c.groups {
			stride, group := l.c.KeyStride(g), &l.c.groups[g]
			for i := range l.wantedIn(g, from, to) {
				keys.add(group.prefixAt, len(group.prefixes), l.hashes.At(KeyIndex(i, stride)))
				if l.stops {
					keys.positions = append(keys.positions, uint32(i))
				}
			}
		}
	}
	keys.starts = append(keys.starts, keys.Len())
	return keys
}

// sections iterates over the hashes [from, to) whose keys are asked together.
func (l *storeLookup) sections() iter.Seq2[int, int] {
	numHashes := l.hashes.Len()
	step := numHashes
	if l.stops {
		step = l.c.sectionHashes
	}
	return func(yield func(int, int) bool) {
		for from := 0; from < numHashes; from += step {
			if !yield(from, min(from+step, numHashes)) {
				return
			}
		}
	}
}

// wantedIn iterates over the wanted positions of group g that hashes [from, to) key.
func (l *storeLookup) wantedIn(g, from, to int) iter.Seq[int] {
	set, stride := l.wanted[g], l.c.KeyStride(g)
	return func(yield func(int) bool) {
		i, end := from/stride, min(to/stride, 64*len(set))
		for i < end {
			word := set[i/64] >> (i % 64)
			if word == 0 {
				i = (i/64 + 1) * 64
				continue
			}
			if i += bits.TrailingZeros64(word); i >= end || !yield(i) {
				return
			}
			i++
		}
	}
}

// sectionsTo returns the number of the first section that does not matter if position i of group g is absent
// from a prompt of numHashes hashes. It is at most the number of sections.
func (c *Coordinator) sectionsTo(g, i, numHashes int) int64 {
	step := int64(c.sectionHashes)
	all := ceilDiv(int64(numHashes), step)
	first := &c.attention[0]
	if c.groups[g].attention != 0 || (i+1)%first.chunkPositions != 0 {
		return all
	}
	gap := i // where the missing chunk begins or, in fine-grained mode, ends
	if c.fineGrained {
		gap++
	}
	hashBlock := int64(c.pool.HashBlockSize)
	end := c.LookEnd(int64(gap) * int64(c.KeyStride(g)) * hashBlock)
	own := int64(KeyIndex(i, c.KeyStride(g))) / step
	return min(all, max(own+1, ceilDiv(ceilDiv(end, hashBlock), step)))
}

// applyAnswers determines the wanted positions by the answers to their keys. Those that the store
// has not answered as they no longer matter stay undetermined.
func (l *storeLookup) applyAnswers(keys *Keys, answers []int) error {
	answered := keys.answered(answers)
	if l.c.rules.exactAnswers && !answered {
		return requesterror.New(ErrAnswerCount, "the store gave %d answers for %d keys", len(answers), keys.Len())
	}
	for from, to := range l.sections() {
		for g := range l.c.groups {
			ranks := len(l.c.groups[g].ranks)
			for i := range l.wantedIn(g, from, to) {
				own := answers[:min(ranks, len(answers))]
				if answered && len(own) < ranks && !slices.ContainsFunc(own, isAbsent) {
					return nil // not asked, as all that follow
				}
				complete, err := onAllRanks(own, ranks)
				if err != nil {
					return err
				}
				answers = answers[len(own):]
				bit := uint64(1) << (i % 64)
				if !complete {
					l.presence.Bits[g][i/64] &^= bit
				}
				l.undetermined[g][i/64] &^= bit
			}
		}
	}
	return nil
}

func isAbsent(answer int) bool { return answer != 1 }

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
