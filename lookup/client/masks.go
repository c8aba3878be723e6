package client

import (
	"context"
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Plan is Lookup with the chunks to load for the hit, in one request. It counts as a lookup.
//
// Up to vLLM 0.26.0 a hit can be all tokens of the prompt. The engine then lowers it, so that one
// token is left to compute: ask LoadMask for the masks of the lowered hit.
func (c *Client) Plan(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Plan, error) {
	r, err := hashesRequest(netproto.TagPlan, numTokens, hashes)
	if err != nil {
		return api.Plan{}, err
	}
	frames, err := c.roundTrip(ctx, r)
	if err != nil {
		return api.Plan{}, err
	}
	if len(frames) != 3 {
		return api.Plan{}, fmt.Errorf("%w: plan with %d frames", ErrReply, len(frames))
	}
	pool := c.transport.lastPool()
	hit, err := parseHit(frames[1], r.numTokens, pool)
	if err != nil {
		return api.Plan{}, err
	}
	masks, err := parseMasks(frames[2], pool)
	if err != nil {
		return api.Plan{}, err
	}
	return api.Plan{Hit: hit, Masks: masks}, nil
}

// LoadMask returns for each group of the pool which chunks a prompt with numHashes hashes must
// load to be served its first tokens tokens, which are a hit. Like StoreMask and LookupMask it
// fails with ErrRequest if a number does not fit 32 bits, and with ErrRefused for numbers that
// the pool's release does not allow.
func (c *Client) LoadMask(ctx context.Context, tokens int64, numHashes int) ([]api.GroupMask, error) {
	if err := checkNumbers(tokens, int64(numHashes)); err != nil {
		return nil, err
	}
	return c.askMasks(ctx, netproto.TagLoadMask, netproto.Prompt{NumTokens: uint32(tokens), NumHashes: uint32(numHashes)})
}

// StoreMask returns for each group of the pool which chunks of the first tokens tokens are worth
// storing, from the first that begins at or after token start. promptTokens is the length of the
// prompt, negative if it is not known.
func (c *Client) StoreMask(ctx context.Context, tokens, start, promptTokens int64) ([]api.GroupMask, error) {
	promptTokens = max(promptTokens, coordinator.NoPrompt)
	if err := checkNumbers(tokens, start, promptTokens+1); err != nil { // 2^32-1 stands for an unknown one
		return nil, err
	}
	// -1 becomes netproto.PromptTokensUnknown.
	prompt := netproto.Prompt{NumTokens: uint32(tokens), StartToken: uint32(start), PromptTokens: uint32(promptTokens)}
	return c.askMasks(ctx, netproto.TagStoreMask, prompt)
}

// LookupMask returns for each group of the pool which chunks of the first tokens tokens a lookup
// checks.
func (c *Client) LookupMask(ctx context.Context, tokens int64) ([]api.GroupMask, error) {
	if err := checkNumbers(tokens); err != nil {
		return nil, err
	}
	return c.askMasks(ctx, netproto.TagLookupMask, netproto.Prompt{NumTokens: uint32(tokens)})
}

// checkNumbers returns ErrRequest unless the numbers fit 32 bits.
func checkNumbers(numbers ...int64) error {
	for _, n := range numbers {
		if n < 0 || n > math.MaxUint32 {
			return fmt.Errorf("%w: %d does not fit 32 bits", ErrRequest, n)
		}
	}
	return nil
}

// askMasks makes a request for masks.
func (c *Client) askMasks(ctx context.Context, tag netproto.Tag, prompt netproto.Prompt) ([]api.GroupMask, error) {
	frames, err := c.roundTrip(ctx, request{tag: tag, prompt: &prompt})
	if err != nil {
		return nil, err
	}
	if len(frames) != 2 {
		return nil, fmt.Errorf("%w: %s with %d frames", ErrReply, tag, len(frames))
	}
	return parseMasks(frames[1], c.transport.lastPool())
}

// parseMasks returns the masks of a frame. pool is nil if it is not known.
func parseMasks(frame []byte, pool *api.Pool) ([]api.GroupMask, error) {
	parsed, ok := netproto.ParseMasks(frame)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes are no masks", ErrReply, len(frame))
	}
	var masks []api.GroupMask
	for _, m := range parsed {
		mask := api.GroupMask{Group: int(m.Group), First: int64(m.First), End: int64(m.End), All: m.All}
		if m.Group == netproto.NoGroup {
			mask.Group = api.NotStored
		}
		for _, run := range m.Runs {
			mask.Runs = append(mask.Runs, api.ChunkRun{Start: int64(run.Start), End: int64(run.End)})
		}
		masks = append(masks, mask)
	}
	if pool == nil {
		return masks, nil
	}
	if len(masks) != len(pool.Pool.Groups) {
		return nil, fmt.Errorf("%w: %d masks for %d groups", ErrReply, len(masks), len(pool.Pool.Groups))
	}
	for _, m := range masks {
		if m.Group >= len(pool.Groups) {
			return nil, fmt.Errorf("%w: a mask of group %d of %d", ErrReply, m.Group, len(pool.Groups))
		}
	}
	return masks, nil
}
