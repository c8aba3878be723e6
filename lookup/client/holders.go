package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Holders asks which engines have most of a prompt, and with query.Loadable how many tokens of it the
// shared store can load. query nil asks about the server's only model. hashes are the hashes of the
// prompt's whole blocks, of 8 bytes or longer, or none; they are borrowed as for Lookup. The caller owns the answer.
//
// It fails with ErrRefused if the server keeps no holders or has no such model. The pool of the client
// does not matter: a model has its own.
func (c *Client) Holders(ctx context.Context, query *api.HoldersQuery, hashes coordinator.Hashes) (*api.HoldersAnswer, error) {
	r, err := holdersRequest(query, hashes)
	if err != nil {
		return nil, err
	}
	doc, err := c.fetchDocument(ctx, r)
	if err != nil {
		return nil, err
	}
	answer := new(api.HoldersAnswer)
	if err := json.Unmarshal(doc, answer); err != nil {
		return nil, fmt.Errorf("%w: holders without its JSON document", ErrReply)
	}
	return answer, nil
}

// holdersRequest returns a holders request. It returns ErrRequest for what the wire cannot take.
func holdersRequest(query *api.HoldersQuery, hashes coordinator.Hashes) (request, error) {
	if query == nil {
		query = new(api.HoldersQuery)
	}
	if hashes.HashLen() > 0 || len(hashes.Blob()) > 0 {
		if err := checkKeys(hashes); err != nil {
			return request{}, err
		}
	}
	text, err := json.Marshal(query)
	if err != nil {
		return request{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if len(text) > netproto.MaxHoldersQuery {
		return request{}, fmt.Errorf("%w: a query of %d bytes, at most %d", ErrRequest, len(text), netproto.MaxHoldersQuery)
	}
	return request{tag: netproto.TagHolders, query: text, hashLen: hashes.HashLen(), blob: hashes.Bytes()}, nil
}
