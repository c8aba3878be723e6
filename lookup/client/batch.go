package client

import (
	"context"
	"errors"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// BatchLookup is one lookup of a batch, and its answer.
type BatchLookup struct {
	NumTokens int64              // of the prompt
	Hashes    coordinator.Hashes // of its blocks; borrowed until Client.Batch returns

	Hit api.Hit // set by Client.Batch
	Err error   // set by Client.Batch: why there is no answer; Hit is then 0
}

// Batch makes many lookups, such as those of one scheduling step, with few writes. There may be
// any number: those that the server does not take at once wait. Batch returns when all are answered
// or have failed.
//
// It returns an error if the connection failed or the time was up before all were answered. What
// concerns one lookup only, such as ErrRefused and ErrRequest, is in its BatchLookup.Err. lookups
// belong to Batch until it returns.
func (c *Client) Batch(ctx context.Context, lookups []BatchLookup) error {
	t := c.transport
	ended := ctx.Err()
	calls := make([]*call, len(lookups))
	for i := range lookups {
		l := &lookups[i]
		r, err := lookupRequest(l.NumTokens, l.Hashes)
		if l.Hit, l.Err = (api.Hit{}), err; err == nil {
			calls[i] = t.getCall(r)
		}
	}
	if ended != nil {
		return failBatch(lookups, calls, exchangeError(ended))
	}
	t.submit(calls...)
	deadline := t.deadline(ctx)
	var lost error
	for i, cl := range calls {
		if cl == nil {
			continue
		}
		l := &lookups[i]
		err := t.await(ctx, cl, deadline)
		switch {
		case err != nil:
			l.Err = err
			if lost == nil { // all at once: one by one would be quadratic
				t.failQueued(calls[i+1:], err)
			}
			lost = err
		case cl.err == nil:
			l.Hit = cl.hit
		default:
			l.Err = cl.err
			own := errors.Is(cl.err, ErrRefused) || errors.Is(cl.err, errHit)
			if !own || errors.As(cl.err, new(*BackoffError)) { // the setup was refused
				lost = cl.err
			}
		}
		t.putCall(cl)
	}
	return lost
}

// failBatch fails the lookups that have a call, none of which was submitted.
func failBatch(lookups []BatchLookup, calls []*call, why error) (lost error) {
	for i, cl := range calls {
		if cl != nil {
			lookups[i].Err, lost = why, why
		}
	}
	return lost
}
