package lookup

import (
	"context"
	"fmt"
	"slices"

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
	if err := s.checkPrompt(numTokens, hashes); err != nil {
		return api.Plan{}, err
	}
	hit, masks, err := s.plan(ctx, numTokens, hashes)
	if err != nil {
		return api.Plan{}, err
	}
	list, err := s.newMasks(masks, nil)
	return api.Plan{Hit: hit, Masks: list}, err
}

// plan is Plan without the conversion of the masks.
func (s *Service) plan(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, []coordinator.Mask, error) {
	if r := s.remote; r != nil {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		defer cancel()
		answer, err := r.lookup(ctx, s.clampPrompt(numTokens), hashes)
		if err != nil {
			return api.Hit{}, nil, err
		}
		masks, err := s.loadMasks(hashes, answer.Hit)
		return answer.Hit, masks, err
	}
	q := s.NewQuery()
	defer q.Release()
	if err := q.addAll(numTokens, hashes); err != nil {
		return api.Hit{}, nil, err
	}
	hit, err := q.finish()
	if err != nil {
		return api.Hit{}, nil, err
	}
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // they were the query's
	masks, err := s.loadMasks(hashes, hit)
	if err == nil {
		q.count()
	}
	return hit, masks, err
}

// loadMasks returns the load masks of the hit of a prompt, from the start of its hashes on.
func (s *Service) loadMasks(hashes coordinator.Hashes, hit api.Hit) ([]coordinator.Mask, error) {
	if hit.Tokens <= hashes.Start() { // there is nothing to load
		return s.coord.EmptyMasks(), nil
	}
	masks, err := s.coord.LoadMask(hit.Tokens, s.coord.NumHashes(hashes))
	for i := range masks {
		masks[i] = masks[i].From(hashes.Start() / int64(s.pool.Groups[i].BlockSize))
	}
	return masks, err
}

// newMasks returns the masks of all groups of the pool.
func (s *Service) newMasks(masks []coordinator.Mask, err error) ([]api.GroupMask, error) {
	if err != nil {
		return nil, err
	}
	list, runs := make([]api.GroupMask, len(masks)), 0
	for i, m := range masks {
		list[i] = api.GroupMask{Group: s.coord.StoreGroup(i), First: m.First(), End: m.First() + m.Len(), All: m.IsAll()}
		if m.IsAll() {
			continue
		}
		for start, end := range m.Runs() {
			if runs++; runs > api.MaxRuns {
				return nil, ErrTooManyRuns
			}
			list[i].Runs = append(list[i].Runs, api.ChunkRun{Start: m.First() + start, End: m.First() + end})
		}
	}
	return list, nil
}
