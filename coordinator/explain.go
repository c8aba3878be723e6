package coordinator

import (
	"errors"

	"github.com/hitline/hitline/netproto"
)

// Reason says why a group's own hit ended where it did.
type Reason string

// The reasons.
const (
	// ReasonComplete: the group serves all tokens that a hit may have: those that were
	// asked for, less the last block where one token must be left to compute.
	ReasonComplete Reason = "complete"
	// ReasonMissing: a block that it needs is stored on no rank.
	ReasonMissing Reason = "missing_block"
	// ReasonRank: a block that it needs is stored on some of its ranks only.
	ReasonRank Reason = "rank_missing"
	// ReasonWindow: a block of the window in front of the last token is missing.
	ReasonWindow Reason = "window_not_covered"
	// ReasonAlignment: what is stored was rounded down to the alignment.
	ReasonAlignment Reason = "alignment"
	// ReasonEagle: the last block was given up for the draft model.
	ReasonEagle Reason = "eagle"
	// ReasonHashes: the request brought fewer hashes than tokens.
	ReasonHashes Reason = "hashes_end"
	// ReasonNothing: no tokens or no hashes were asked for.
	ReasonNothing Reason = "nothing_asked"
)

// GroupEnd tells where one group, asked alone, would end a hit, and why. The
// common hit is never longer than the shortest of them plus what LookEnd adds.
type GroupEnd struct {
	Group     int
	Kind      Kind
	EndTokens int64 // tokens
	Reason    Reason
	// FirstMissing is the first absent block among those that a hit of all tokens
	// would need of this group: all of them for full attention, the last window,
	// the current chunk, the last state. It is -1 if none is absent.
	FirstMissing int64
}

// Explain tells for each group why a lookup of numTokens hit no more. p is as for
// Answer, but with the bits behind the first miss filled in too; partly has the
// blocks that are stored on some of their ranks and not all. It fails where Answer
// does, and only there: a group that would fail alone, because the request brought
// too few hashes for it, is asked for what these cover. It allocates, and is meant
// for a person's question.
func (c *Coordinator) Explain(p, partly *Presence, numTokens int64) ([]GroupEnd, error) {
	scratch := new(Scratch)
	if _, err := c.Answer(p, numTokens, scratch); err != nil {
		return nil, err
	}
	ends := make([]GroupEnd, len(c.groups))
	var tokenLen int64
	if p.NumHashes > 0 && numTokens > 0 {
		var err error
		if tokenLen, err = c.TokenLen(numTokens); err != nil {
			return nil, err
		}
		if c.leavesOne(p, tokenLen, numTokens, scratch) {
			tokenLen = floorTo(numTokens-1, c.align)
		}
	}
	for g := range c.groups {
		ends[g] = GroupEnd{Group: g, Kind: c.pool.Groups[g].Kind, Reason: ReasonNothing, FirstMissing: -1}
		if tokenLen == 0 {
			continue
		}
		if err := c.explainGroup(&ends[g], p, partly, tokenLen); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// leavesOne tells whether the answer is that of a shorter prompt: see leaveOne.
func (c *Coordinator) leavesOne(p *Presence, tokenLen, numTokens int64, s *Scratch) bool {
	if c.pool.Revision != Revision20260817 || !c.asksAny(tokenLen, p.NumHashes) {
		return false
	}
	hit, err := c.FindHit(p, tokenLen, true, s)
	return err == nil && hit >= numTokens
}

// LookupExplain is Lookup and Explain over an external store. It calls Exists at most
// once. Unlike Lookup it fails if the store does: then there is nothing to explain.
func (c *Coordinator) LookupExplain(numTokens int64, hashes netproto.Hashes, store KeyStore) (int64, []GroupEnd, error) {
	recorded := &recordingStore{KeyStore: store}
	hit, err := c.Lookup(numTokens, hashes, recorded)
	if recorded.err != nil {
		return 0, nil, recorded.err
	}
	if err != nil {
		return 0, nil, err
	}
	answers := recorded.answers
	p := &Presence{NumHashes: hashes.Len(), Bits: make([][]uint64, len(c.groups))}
	partly := p
	if answers != nil { // Lookup has checked their number
		tokenLen, _ := c.TokenLen(numTokens)
		if p, err = c.presence(tokenLen, hashes, answers); err != nil {
			return 0, nil, err
		}
		partly = c.partlyStored(tokenLen, hashes, answers)
	}
	ends, err := c.Explain(p, partly, numTokens)
	return hit, ends, err
}

// explainGroup fills in the end of one group, as if it were the only one.
func (c *Coordinator) explainGroup(end *GroupEnd, p, partly *Presence, tokenLen int64) error {
	alone := c.attention[c.groups[end.Group].attention]
	alone.members = []int{end.Group}
	q := request{maxLength: tokenLen, align: c.align, drop: alone.eagle, ones: new(span)}
	if c.rules.singleAlignsToBlock && len(c.attention) == 1 {
		q.align = alone.block
	}
	f, err := c.find(&alone, p, q)
	if errors.Is(err, ErrIndexOutOfRange) { // other groups keep Answer from looking there
		covered := int64(p.NumHashes/alone.stride) * alone.block
		q.maxLength = floorTo(min(tokenLen, covered), q.align)
		f, err = c.find(&alone, p, q)
	}
	if errors.Is(err, ErrPrecondition) {
		return nil // Answer has not: no group has anything to ask
	}
	if err != nil {
		return err
	}
	end.EndTokens = f.hit
	v := alone.view(p)
	blocks := q.maxLength / alone.block
	known := min(blocks, int64(p.NumHashes/alone.stride))
	for i := alone.firstNeeded(blocks, q.maxLength); i < known; i++ {
		if !v.has(int(i)*alone.step + alone.step - 1) {
			end.FirstMissing = i
			break
		}
	}
	end.Reason = alone.reason(end, partly, q, known < blocks || q.maxLength < tokenLen, tokenLen)
	return nil
}

// firstNeeded returns the first block that a hit of all tokens needs.
func (a *attentionGroup) firstNeeded(blocks, tokenLen int64) int64 {
	switch {
	case a.Kind.window():
		return max(0, blocks-int64(max(1, a.windowBlocks(false))))
	case a.Kind == ChunkedLocalAttention:
		return floorTo(tokenLen, int64(a.AttentionChunkSize)) / a.block
	case a.Kind == Mamba:
		return max(0, blocks-1)
	}
	return 0
}

func (a *attentionGroup) reason(end *GroupEnd, partly *Presence, q request, hashesEnd bool, tokenLen int64) Reason {
	missing := end.FirstMissing
	switch {
	case end.EndTokens >= tokenLen:
		return ReasonComplete
	case missing < 0 && hashesEnd:
		return ReasonHashes
	case missing < 0 && q.drop:
		return ReasonEagle
	case missing < 0:
		return ReasonAlignment
	}
	view := a.view(partly)
	switch {
	case view.has(int(missing)*a.step + a.step - 1):
		return ReasonRank
	case a.Kind.window():
		return ReasonWindow
	case a.Kind.IsFull() && !q.drop && missing*a.block-end.EndTokens >= a.block:
		return ReasonAlignment
	}
	return ReasonMissing
}
