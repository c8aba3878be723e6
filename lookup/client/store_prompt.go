package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// StorePrompt stores the blocks of a prompt that the rules of the pool keep, on all ranks that
// p names, in every group. hashes are the block hashes of the prompt from p.FirstHash on; they
// are sent without a copy and borrowed until it returns. It returns for each store group how
// many chunks, states included, were stored.
//
// It fails with ErrRefused if the prompt does not fit the pool or a hash is missing: nothing is
// stored then. If parts could not be stored the others are, and the error is an
// *api.PartsError too. After ErrConnect and ErrNoAnswer all or some of it may be stored.
func (c *Client) StorePrompt(ctx context.Context, p api.PromptStore, hashes coordinator.Hashes) (stored []int64, err error) {
	if err := checkKeys(hashes); err != nil {
		return nil, err
	}
	prompt := new(netproto.Prompt)
	if err := p.Encode(prompt); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	frames, err := c.roundTrip(ctx, request{tag: netproto.TagStorePrompt, hashLen: hashes.HashLen(), blob: hashes.Bytes(), prompt: prompt})
	if err != nil {
		return nil, withParts(frames, err)
	}
	if len(frames) != 2 || len(frames[1])%4 != 0 {
		return nil, fmt.Errorf("%w: %s with %d frames, or a cut number", ErrReply, netproto.TagStorePrompt, len(frames))
	}
	for rest := frames[1]; len(rest) > 0; rest = rest[4:] {
		stored = append(stored, int64(binary.BigEndian.Uint32(rest)))
	}
	return stored, nil
}

// withParts adds to a refusal the parts that its third frame lists.
func withParts(frames [][]byte, err error) error {
	parts := new(api.PartsError)
	if len(frames) < 3 || !errors.Is(err, ErrRefused) || json.Unmarshal(frames[2], parts) != nil || len(parts.Parts) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, parts)
}
