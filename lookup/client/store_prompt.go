package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// StorePrompt stores the blocks of a prompt that the rules of the pool keep, on all ranks that
// p names, in every group. hashes are the block hashes of the prompt from p.FirstHash on; they
// are borrowed until it returns. It returns for each store group how many chunks, states included,
// were stored.
//
// It fails with ErrRefused if the prompt does not fit the pool or a hash is missing: nothing is
// stored then. If parts could not be stored the others are, and the error is an *api.PartsError and
// an api.ErrPartlyDone. After ErrConnect and ErrNoAnswer all or some of it may be stored.
func (c *Client) StorePrompt(ctx context.Context, p api.PromptStore, hashes coordinator.Hashes) (stored []int64, err error) {
	if err := checkKeys(hashes); err != nil {
		return nil, err
	}
	prompt, err := encodePrompt(&p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	frames, err := c.roundTrip(ctx, request{tag: netproto.TagStorePrompt, hashLen: hashes.HashLen(), blob: hashes.Bytes(), prompt: prompt})
	if err != nil {
		return nil, err
	}
	if len(frames) != 2 || len(frames[1])%4 != 0 {
		return nil, fmt.Errorf("%w: %s with %d frames, or a cut number", ErrReply, netproto.TagStorePrompt, len(frames))
	}
	if pool := c.transport.lastPool(); pool != nil && len(frames[1]) != 4*len(pool.Groups) {
		return nil, fmt.Errorf("%w: %s with %d numbers for %d groups", ErrReply, netproto.TagStorePrompt, len(frames[1])/4, len(pool.Groups))
	}
	for rest := frames[1]; len(rest) > 0; rest = rest[4:] {
		stored = append(stored, int64(binary.BigEndian.Uint32(rest)))
	}
	return stored, nil
}

// encodePrompt returns the numbers and lists of a request. It fails with api.ErrPrompt if a number
// does not fit the wire.
func encodePrompt(p *api.PromptStore) (*netproto.Prompt, error) {
	if len(p.Ranks) > netproto.MaxRanks || len(p.States) > netproto.MaxStates {
		return nil, fmt.Errorf("%w: %d ranks and %d states, at most %d and %d are possible",
			api.ErrPrompt, len(p.Ranks), len(p.States), netproto.MaxRanks, netproto.MaxStates)
	}
	out := new(netproto.Prompt)
	promptTokens := p.PromptTokens
	if promptTokens == 0 {
		promptTokens = int64(netproto.PromptTokensUnknown)
	}
	for _, f := range [...]struct {
		name string
		n    int64
		to   *uint32
	}{
		{"num_tokens", p.NumTokens, &out.NumTokens}, {"start_token", p.StartToken, &out.StartToken},
		{"prompt_tokens", promptTokens, &out.PromptTokens}, {"first_hash", int64(p.FirstHash), &out.FirstHash},
	} {
		if f.n < 0 || f.n > math.MaxUint32 {
			return nil, fmt.Errorf("%w: %s %d does not fit 32 bits", api.ErrPrompt, f.name, f.n)
		}
		*f.to = uint32(f.n)
	}
	for _, r := range p.Ranks {
		out.AddRank(netproto.WireRank(r))
	}
	for _, s := range p.States {
		if s.Group < 0 || int64(s.Group) > math.MaxUint32 || s.Tokens < 0 || s.Tokens > math.MaxUint32 {
			return nil, fmt.Errorf("%w: a state of group %d at token %d does not fit 32 bits", api.ErrPrompt, s.Group, s.Tokens)
		}
		out.AddState(uint32(s.Group), uint32(s.Tokens))
	}
	return out, nil
}
