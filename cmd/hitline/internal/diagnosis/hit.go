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
	coordinator.RemembersNothing
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

// examineHit looks a prompt up.
func (e *examination) examineHit(ctx context.Context, prompt Prompt) {
	r := e.report
	tokens := e.alignTokens(prompt.Tokens)
	store := &boundedStore{ctx: ctx, store: e.store}
	hit, ends, _, err := e.rules.LookupExplain(tokens, prompt.Hashes, store)
	if err != nil {
		r.addProblem("the prompt could not be looked up: %v", err)
		return
	}
	r.Prompt = &PromptHit{Tokens: tokens, Explanation: api.NewExplanation(api.Hit{Tokens: hit.Tokens}, ends)}
	if store.asked > 0 && !store.any {
		r.addNote("none of the prompt's blocks that lookups ask for is in the store: give one that an engine has stored. vLLM engines up to 0.28 find each other's blocks, and their own after a restart, only if all have the same PYTHONHASHSEED set, without which their first hash is random; from 0.29 on sha256 has a fixed default")
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
