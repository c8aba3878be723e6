package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// givenPrompt is the prompt that doctor is given, with all of its hashes.
type givenPrompt struct {
	prompt
	all netproto.Hashes
}

// promptHit is what a lookup of a prompt answers, and why.
type promptHit struct {
	Tokens int64 `json:"tokens"` // of the lookup
	api.Explanation
}

// maxKeyBytes bounds the memory for the keys of a prompt.
const maxKeyBytes = 1 << 30

// boundedStore is a store that a prompt is looked up in.
type boundedStore struct {
	ctx   context.Context
	store *store
}

// Reserve refuses more than maxKeyBytes.
func (s *boundedStore) Reserve(bytes int64) error {
	if bytes > maxKeyBytes {
		return fmt.Errorf("its keys take %d bytes, at most %d are asked for: give a shorter one", bytes, maxKeyBytes)
	}
	return nil
}

// Exists asks the store.
func (s *boundedStore) Exists(keys []string) ([]int, error) { return s.store.Exists(s.ctx, keys) }

// examineHit notes what a lookup of the prompt answers. found tells whether any of the
// prompt's first blocks is stored.
func (d *diagnosis) examineHit(ctx context.Context, e expected, s *store, p givenPrompt, found bool) {
	tokens := d.alignTokens(e, p.tokens)
	hit, ends, err := e.rules.LookupExplain(tokens, p.all, &boundedStore{ctx, s})
	if err != nil {
		d.problem("the prompt could not be looked up: %v", err)
		return
	}
	d.Prompt = &promptHit{Tokens: tokens, Explanation: api.NewExplanation(api.Hit{Tokens: hit}, ends)}
	switch {
	case !found && hit == 0:
		d.note("none of the prompt's first %d blocks is in the store: give one that an engine has stored. vLLM engines up to 0.28 find each other's blocks, and their own after a restart, only if all have the same PYTHONHASHSEED set, without which their first hash is random; from 0.29 on sha256 has a fixed default",
			len(p.hashes)/p.hashLen)
	case allComplete(ends):
		d.noteAllStored(e, d.Prompt, p)
	default:
		d.noteEnds(d.Prompt)
	}
}

// alignTokens returns the number of tokens that an engine of the pool's revision asks for.
func (d *diagnosis) alignTokens(e expected, tokens int64) int64 {
	if _, err := e.rules.TokenLen(tokens); !errors.Is(err, coordinator.ErrPrecondition) {
		return tokens
	}
	align := e.rules.Alignment()
	d.note("prompts of %d tokens are refused at pool.revision %s, which takes multiples of %d: an engine of vLLM 0.27 or newer needs pool.revision: %s",
		tokens, e.rules.Pool().Revision, align, coordinator.Revision20260817)
	return tokens - tokens%align
}

// allComplete tells whether every group serves all tokens.
func allComplete(ends []coordinator.GroupEnd) bool {
	for _, end := range ends {
		if end.Reason != coordinator.ReasonComplete {
			return false
		}
	}
	return true
}

// noteAllStored notes that nothing of a prompt is missing.
func (d *diagnosis) noteAllStored(e expected, h *promptHit, p givenPrompt) {
	aligned := h.Tokens - h.Tokens%e.rules.Alignment()
	masks, err := e.rules.LoadMask(p.numHashes, aligned)
	if err != nil { // not of a lookup that is complete
		d.problem("the prompt could not be looked up: %v", err)
		return
	}
	blocks := 0
	for _, mask := range masks {
		for start, end := range mask.Runs() {
			blocks += int(end - start)
		}
	}
	which, left := "", ""
	if aligned < p.tokens {
		which = "first "
	}
	if h.HitTokens < aligned {
		left = ", so that the engine has the last one to compute"
	}
	d.note("all %d %s that the prompt's %s%d tokens need are in the store on every rank of every group: a lookup hits %d tokens%s",
		blocks, plural(blocks, "block"), which, aligned, h.HitTokens, left)
}

// noteEnds notes for each group where its part of a hit ends, and why.
func (d *diagnosis) noteEnds(h *promptHit) {
	d.note("a lookup of the prompt's %d tokens hits %d", h.Tokens, h.HitTokens)
	for _, g := range h.Groups {
		d.note("group %d (%s) ends at token %d: %s (%s)", g.Group, g.Kind, g.EndTokens, reasonText(g), g.Reason)
	}
}

// reasonText words why a group's part of a hit ended.
func reasonText(g api.GroupExplanation) string {
	block := int64(-1)
	if g.FirstMissingBlock != nil {
		block = *g.FirstMissingBlock
	}
	switch g.Reason {
	case coordinator.ReasonComplete:
		return "it has all that the prompt needs"
	case coordinator.ReasonMissing:
		return fmt.Sprintf("block %d is on no rank", block)
	case coordinator.ReasonRank:
		return fmt.Sprintf("block %d is on some of its ranks only", block)
	case coordinator.ReasonWindow:
		return fmt.Sprintf("block %d, of the window in front of the last token, is on no rank", block)
	case coordinator.ReasonAlignment:
		return "what is stored behind is less than the alignment of hits"
	case coordinator.ReasonEagle:
		return "the last block is given up for the draft model"
	case coordinator.ReasonHashes:
		return "the prompt's hashes end there"
	case coordinator.ReasonNothing:
		return "the prompt is shorter than what hits are aligned to"
	}
	return "for an unknown reason"
}
