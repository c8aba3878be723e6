package lookup

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// LoadMask returns which chunks a prompt with numHashes hashes must load to be served its first
// tokens tokens, which are a hit: one mask for each group of the pool. It asks no store. It fails
// where the reference does (coordinator.LoadMask), with ErrTokens or with ErrTooManyRuns.
func (s *Service) LoadMask(_ context.Context, tokens int64, numHashes int) ([]api.GroupMask, error) {
	if tokens < 0 {
		return nil, fmt.Errorf("%w: num_tokens %d", ErrTokens, tokens)
	}
	return s.newMasks(s.coord.LoadMask(tokens, numHashes))
}

// StoreMask returns which chunks of the first tokens tokens are worth storing, from the first that
// begins at or after token start. promptTokens is the length of the prompt, negative if it is not
// known. It asks no store. It fails where the reference does (coordinator.StoreMask), with
// ErrTokens or with ErrTooManyRuns.
func (s *Service) StoreMask(_ context.Context, tokens, start, promptTokens int64) ([]api.GroupMask, error) {
	if tokens < 0 || start < 0 {
		return nil, fmt.Errorf("%w: num_tokens %d, start_token %d", ErrTokens, tokens, start)
	}
	return s.newMasks(s.coord.StoreMask(tokens, start, max(promptTokens, coordinator.NoPrompt)))
}

// LookupMask returns which chunks of the first tokens tokens a lookup checks. It asks no store.
// It fails where the reference does (coordinator.LookupMask), with ErrTokens or with
// ErrTooManyRuns.
func (s *Service) LookupMask(_ context.Context, tokens int64) ([]api.GroupMask, error) {
	if tokens < 0 {
		return nil, fmt.Errorf("%w: num_tokens %d", ErrTokens, tokens)
	}
	return s.newMasks(s.coord.LookupMask(tokens))
}

// Plan is Lookup with the load masks of its hit, from the start of the hashes on. It counts as a
// lookup.
//
// Up to vLLM 0.26.0 a hit can be all tokens of the prompt. The engine then lowers it, so that one
// token is left to compute, and loads the masks of the lowered hit: ask LoadMask for them. From
// 0.27.0 on the lookup itself lowers the hit.
func (s *Service) Plan(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Plan, error) {
	answer, err := s.lookup(ctx, numTokens, hashes, LookupOptions{})
	if err != nil {
		return api.Plan{}, err
	}
	list, err := s.newMasks(s.loadMasks(hashes, answer.Hit))
	return api.Plan{Hit: answer.Hit, Masks: list}, err
}
