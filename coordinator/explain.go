package coordinator

import (
	"errors"
	"slices"
)

// Reason is the reason why the hit of one group ends where it does.
type Reason string

// The reasons.
const (
	// ReasonComplete: the group ends at the longest possible end in this prompt: all its
	// tokens, or from 0.27.0 on one less, rounded down to the alignment.
	ReasonComplete Reason = "complete"
	// ReasonMissing: a block that the group needs is stored on no rank.
	ReasonMissing Reason = "missing_block"
	// ReasonRank: a block that the group needs is stored on some of its ranks only.
	ReasonRank Reason = "rank_missing"
	// ReasonWindow: a block of the window before the last token is missing.
	ReasonWindow Reason = "window_not_covered"
	// ReasonAlignment: what is stored was rounded down to the alignment.
	ReasonAlignment Reason = "alignment"
	// ReasonEagle: the last block was dropped for the draft model.
	ReasonEagle Reason = "eagle"
	// ReasonHashes: the request has too few hashes for its tokens.
	ReasonHashes Reason = "hashes_end"
	// ReasonNothing: the request has no tokens or no hashes.
	ReasonNothing Reason = "nothing_asked"
)

// GroupEnd is the hit of one group as if the pool had no other, and its reason. The common
// hit is at most LookEnd of the shortest.
type GroupEnd struct {
	Group     int // store group
	Kind      Kind
	EndTokens int64 // the hit in tokens
	Reason    Reason
	// FirstMissing is the first absent block among those that the longest possible end of the
	// group in this prompt needs, -1 if none is absent. Full attention needs all blocks, the
	// others those of the last window, the current attention chunk or the last state.
	FirstMissing int64
	// MissingRank is the first of Ranks(Group) that lacks block FirstMissing, and MissingRanks
	// how many of them do, if others have it. Otherwise MissingRanks is 0. Explain leaves both
	// to SetMissingRank.
	MissingRank  Rank
	MissingRanks int
	// GapStart and GapEnd are the gap [GapStart, GapEnd): the absent blocks next behind
	// EndTokens that keep the group from ending later in this prompt. With all of them stored on
	// all ranks it would. Both are 0 if there are none: the group would not end later, whatever
	// blocks are stored.
	//
	// The gap begins with the first absent block that the first possible end behind EndTokens
	// needs. It ends with the first stored block behind the last such one, or where the blocks
	// end that are looked up. In fine-grained mode only ends of whole blocks count.
	GapStart, GapEnd int64
}

// SetMissingRank sets MissingRank and MissingRanks if the block FirstMissing is on some of its
// ranks only. holds reports whether rank i of Ranks(end.Group) has it.
func (c *Coordinator) SetMissingRank(end *GroupEnd, holds func(i int) bool) {
	ranks, missing, first := c.Ranks(end.Group), 0, 0
	for i := range ranks {
		if !holds(i) {
			if missing++; missing == 1 {
				first = i
			}
		}
	}
	if 0 < missing && missing < len(ranks) {
		end.MissingRank, end.MissingRanks = ranks[first], missing
	}
}

// FirstMissingPosition returns the presence position that keys the block FirstMissing, -1 if
// there is none.
func (c *Coordinator) FirstMissingPosition(end *GroupEnd) int {
	if end.FirstMissing < 0 {
		return -1
	}
	return KeyIndex(int(end.FirstMissing), c.Stride(end.Group)/c.KeyStride(end.Group))
}

// Explain is Answer with the end of each group's hit and its reason. p is as
// for Answer, but must have the bits behind the first miss too. onAnyRank begins at the same start, and
// must have the blocks that are stored on some of their ranks and not all.
//
// It fails if Answer does, and only then: for a group that would fail alone, because the
// request has too few hashes for it, the tokens of these hashes count. It allocates, and is
// meant for diagnosis.
func (c *Coordinator) Explain(p, onAnyRank *Presence, numTokens int64) (Hit, []GroupEnd, error) {
	hit, err := c.Answer(p, numTokens, new(Scratch))
	if err != nil {
		return Hit{}, nil, err
	}
	tokenLen := int64(0)
	if p.NumHashes > 0 && numTokens > 0 {
		if tokenLen, err = c.TokenLen(numTokens); err != nil {
			return Hit{}, nil, err
		}
	}
	ends := make([]GroupEnd, len(c.groups))
	for g := range ends {
		ends[g] = GroupEnd{Group: g, Kind: c.groups[g].Kind, Reason: ReasonNothing, FirstMissing: -1}
		if tokenLen > 0 {
			if err := c.explainGroup(&ends[g], p, onAnyRank, tokenLen, numTokens); err != nil {
				return Hit{}, nil, err
			}
		}
	}
	return hit, ends, nil
}

// LookupExplain is LookupEnding and Explain over an external store. Unlike Lookup it checks all keys in one round, in the
// reference's order, and returns an error of the store: there is nothing to explain then.
func (c *Coordinator) LookupExplain(numTokens int64, hashes Hashes, store KeyStore) (Hit, []GroupEnd, Ending, error) {
	l, err := c.newStoreLookup(numTokens, hashes)
	if err != nil {
		return Hit{}, nil, Ending{}, err
	}
	if l == nil {
		none := &Presence{NumHashes: c.NumHashes(hashes), Bits: make([][]uint64, len(c.groups))}
		hit, ends, err := c.Explain(none, none, numTokens)
		return hit, ends, c.nothingFound(hashes), err
	}
	defer l.release()
	var answers []int
	if l.wantAll(); l.numWanted() > 0 {
		var storeErr error
		if answers, storeErr, err = l.exists(store); storeErr != nil || err != nil {
			return Hit{}, nil, Ending{}, errors.Join(storeErr, err)
		}
	}
	p := &Presence{NumHashes: l.presence.NumHashes, Bits: l.presence.Bits, Start: l.presence.Start}
	hit, ends, err := c.Explain(p, l.presentOnAnyRank(answers), numTokens)
	if err != nil {
		return Hit{}, nil, Ending{}, err
	}
	l.setMissingRanks(ends, answers)
	return hit, ends, c.Ending(p, hit, numTokens, &l.scratch), nil
}

// presentOnAnyRank returns the positions whose blocks are stored on at least one of their ranks,
// by the answers to all keys. applyAnswers must have accepted them.
func (l *storeLookup) presentOnAnyRank(answers []int) *Presence {
	p := &Presence{NumHashes: l.presence.NumHashes, Bits: make([][]uint64, len(l.c.groups)), Start: l.presence.Start}
	for g := range l.c.groups {
		p.Bits[g] = make([]uint64, len(l.presence.Bits[g]))
		ranks := len(l.c.groups[g].ranks)
		for from, to := range l.keyRuns(g) {
			for i := from; i < to; i++ {
				n := min(ranks, len(answers)) // from 0.25.0 on the last ones may be missing
				if slices.Contains(answers[:n], 1) {
					p.Bits[g][i/64] |= 1 << (i % 64)
				}
				answers = answers[n:]
			}
		}
	}
	return p
}

// setMissingRanks sets the missing ranks of all groups by the answers to all keys of a lookup.
func (l *storeLookup) setMissingRanks(ends []GroupEnd, answers []int) {
	for g := range ends {
		end, ranks := &ends[g], len(l.c.groups[g].ranks)
		missing := l.c.FirstMissingPosition(end) - l.c.FirstPosition(g, l.presence.Start)
		for from, to := range l.keyRuns(g) {
			if from <= missing && missing < to {
				own := answers[min((missing-from)*ranks, len(answers)):] // from 0.25.0 on the last may be missing
				l.c.SetMissingRank(end, func(i int) bool { return i < len(own) && own[i] == 1 })
			}
			answers = answers[min((to-from)*ranks, len(answers)):]
		}
	}
}

// explainGroup sets end to that of its group, as if it were the only one.
func (c *Coordinator) explainGroup(end *GroupEnd, p, onAnyRank *Presence, tokenLen, numTokens int64) error {
	alone := c.attention[c.groups[end.Group].attention]
	alone.members, alone.before = c.groups[end.Group].self[:], &c.groups[end.Group].before
	args := finderArgs{maxLength: tokenLen, align: c.align, drop: alone.eagle}
	if c.rules.singleAlignsToBlock && len(c.attention) == 1 {
		args.align = alone.block
	}
	f, err := c.findAlone(&alone, p, &args)
	if c.rules.shortensFullHit && !alone.dropsBlock() {
		// A hit of all tokens is that of one token less, so the group needs no block behind.
		tokenLen = floorTo(min(tokenLen, numTokens-1), c.align)
		if args.maxLength = min(args.maxLength, tokenLen); f.hit > tokenLen {
			f, err = c.findAlone(&alone, p, &args)
		}
	}
	if errors.Is(err, ErrPrecondition) {
		return nil // Answer did not fail: no group has a key to check
	}
	if err != nil {
		return err
	}
	end.EndTokens = f.hit
	v := alone.view(p)
	blocks := args.maxLength / alone.block
	numKnown := min(blocks, int64(p.NumHashes/alone.stride))
	mayEndLater := end.EndTokens < tokenLen
	if mayEndLater && !c.pool.CapacityOnly {
		alone.findGap(end, &v, args, numKnown, c.KeyMask(end.Group))
		mayEndLater = end.GapEnd > 0
	}
	if mayEndLater {
		from, to := alone.lastNeeded(numKnown, args)
		missing := v.firstAbsentBlock(from, to, alone.chunkPositions)
		if missing < to && (missing+1)*alone.block > end.EndTokens { // a state inside a block can lie behind
			end.FirstMissing = missing
		}
	}
	end.Reason = alone.reason(end, onAnyRank, args, numKnown < blocks || args.maxLength < tokenLen, tokenLen)
	return nil
}

// findAlone runs the finder of a group. Where it would read a hash that the request does not have,
// the tokens of the hashes count, which are then args.maxLength: the other groups kept Answer from
// reading there.
func (c *Coordinator) findAlone(a *attentionGroup, p *Presence, args *finderArgs) (groupHit, error) {
	args.present = new(span)
	f, err := c.find(a, p, *args)
	if errors.Is(err, ErrIndexOutOfRange) {
		covered := int64(p.NumHashes/a.stride) * a.block
		args.maxLength, args.present = floorTo(min(args.maxLength, covered), args.align), new(span)
		f, err = c.find(a, p, *args)
	}
	return f, err
}

// firstAbsentBlock returns the first absent block in [from, to), to if there is none.
func (v *view) firstAbsentBlock(from, to int64, chunkPositions int) int64 {
	if chunkPositions == 1 && from < to {
		return int64(v.onesFrom(int(from), int(to)))
	}
	from = max(from, min(to, int64(v.firstBlock(chunkPositions))))
	for from < to && v.hasBlock(int(from), chunkPositions) {
		from++
	}
	return from
}

// lastNeeded returns the blocks [from, to) that the longest possible hit in a number of blocks
// needs.
func (a *attentionGroup) lastNeeded(blocks int64, args finderArgs) (from, to int64) {
	switch {
	case a.Kind.IsWindow() && blocks > 0:
		last := blocks - 1
		if args.drop { // its left edge is aligned
			last = floorTo(last, max(1, args.align/a.block))
		}
		return max(0, last+1-int64(max(1, a.windowBlocks(args.drop)))), last + 1
	case a.Kind == ChunkedLocalAttention:
		from = floorTo(args.maxLength, int64(a.AttentionChunkSize)) / a.block
	case a.Kind == Mamba:
		from = max(0, blocks-1)
	}
	return from, blocks
}

// reason returns the reason for an end whose other fields are set. hashesEnd reports whether
// the request has too few hashes for tokenLen.
func (a *attentionGroup) reason(end *GroupEnd, onAnyRank *Presence, args finderArgs, hashesEnd bool, tokenLen int64) Reason {
	missing := end.FirstMissing
	switch {
	case end.EndTokens >= tokenLen:
		return ReasonComplete
	case missing < 0 && hashesEnd:
		return ReasonHashes
	case missing < 0 && args.drop:
		return ReasonEagle
	case missing < 0:
		return ReasonAlignment
	}
	v := a.view(onAnyRank)
	switch {
	case v.hasBlock(int(missing), a.chunkPositions):
		return ReasonRank
	case a.Kind.IsWindow():
		return ReasonWindow
	case a.Kind.IsFull() && !args.drop && missing*a.block-end.EndTokens >= a.block:
		return ReasonAlignment
	}
	return ReasonMissing
}
