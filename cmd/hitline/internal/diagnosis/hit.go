package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// maxKeyBytes bounds the memory for the keys of a prompt.
const maxKeyBytes = 1 << 30

// boundedStore is the coordinator.KeyStore of one lookup of a prompt.
type boundedStore struct {
	ctx   context.Context
	store *Store
	asked int  // keys
	any   bool // of them is there
}

// Reserve refuses more than maxKeyBytes.
func (s *boundedStore) Reserve(bytes int64) error {
	if bytes > maxKeyBytes {
		return fmt.Errorf("its keys take %d bytes, at most %d are asked for: give a shorter one", bytes, maxKeyBytes)
	}
	return nil
}

// Exists asks the store.
func (s *boundedStore) Exists(keys *coordinator.Keys) ([]int, error) {
	answers, err := s.store.Exists(s.ctx, keys.Strings())
	s.asked += keys.Len()
	s.any = s.any || slices.Contains(answers, 1)
	return answers, err
}

// examineHit looks a prompt up and adds notes on the answer.
func (e *examination) examineHit(ctx context.Context, prompt Prompt) {
	r := e.report
	tokens := e.alignTokens(prompt.Tokens)
	store := &boundedStore{ctx: ctx, store: e.store}
	hit, ends, err := e.rules.LookupExplain(tokens, prompt.Hashes, store)
	if err != nil {
		r.addProblem("the prompt could not be looked up: %v", err)
		return
	}
	r.Prompt = &PromptHit{Tokens: tokens, Explanation: api.NewExplanation(api.Hit{Tokens: hit.Tokens}, ends)}
	switch {
	case store.asked > 0 && !store.any:
		r.addNote("none of the prompt's blocks that lookups ask for is in the store: give one that an engine has stored. vLLM engines up to 0.28 find each other's blocks, and their own after a restart, only if all have the same PYTHONHASHSEED set, without which their first hash is random; from 0.29 on sha256 has a fixed default")
	case allComplete(ends):
		e.noteComplete(prompt)
	default:
		r.noteGroupEnds()
	}
}

// alignTokens returns the number of tokens that an engine of the pool's release asks for.
func (e *examination) alignTokens(tokens int64) int64 {
	if _, err := e.rules.TokenLen(tokens); !errors.Is(err, coordinator.ErrPrecondition) {
		return tokens
	}
	align := e.rules.Alignment()
	e.report.addNote("prompts of %d tokens are refused for vLLM %s, which asks for multiples of %d: an engine of vLLM 0.27 or newer needs its release in pool.vllm",
		tokens, e.pool.FittingReleases(), align)
	return tokens - tokens%align
}

// allComplete reports whether every group serves all tokens.
func allComplete(ends []coordinator.GroupEnd) bool {
	for _, end := range ends {
		if end.Reason != coordinator.ReasonComplete {
			return false
		}
	}
	return true
}

// noteComplete adds a note that no block of a prompt is missing.
func (e *examination) noteComplete(prompt Prompt) {
	r := e.report
	aligned := r.Prompt.Tokens - r.Prompt.Tokens%e.rules.Alignment()
	masks, err := e.rules.LoadMask(aligned, prompt.Hashes.Len())
	if err != nil { // not of a lookup that is complete
		r.addProblem("the prompt could not be looked up: %v", err)
		return
	}
	blocks := 0
	for _, mask := range masks {
		for start, end := range mask.Runs() {
			blocks += int(end - start)
		}
	}
	first, toCompute := "", ""
	if aligned < prompt.Tokens {
		first = "first "
	}
	if r.Prompt.HitTokens < aligned {
		toCompute = ", so that the engine has the last one to compute"
	}
	r.addNote("all %d %s that the prompt's %s%d tokens need are in the store on every rank of every group: a lookup hits %d tokens%s",
		blocks, plural(blocks, "block"), first, aligned, r.Prompt.HitTokens, toCompute)
}

// noteGroupEnds adds a note for each group: where its part of the hit ends, and why.
func (r *Report) noteGroupEnds() {
	r.addNote("a lookup of the prompt's %d tokens hits %d", r.Prompt.Tokens, r.Prompt.HitTokens)
	for _, g := range r.Prompt.Groups {
		r.addNote("group %d (%s) ends at token %d: %s (%s)", g.Group, g.Kind, g.EndTokens, formatReason(g), g.Reason)
	}
}

// formatReason writes the reason why a group's part of a hit ends.
func formatReason(g api.GroupExplanation) string {
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
		return fmt.Sprintf("block %d is on some of its ranks only%s", block, formatMissingRank(g))
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

// formatMissingRank writes which rank lacks the first missing block.
func formatMissingRank(g api.GroupExplanation) string {
	switch {
	case g.MissingRank == nil:
		return ""
	case g.MissingRanks == 1:
		return fmt.Sprintf(": %s lacks it", g.MissingRank)
	}
	return fmt.Sprintf(": %d lack it, the first %s", g.MissingRanks, g.MissingRank)
}
