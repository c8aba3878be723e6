package client

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/netproto"
)

// paramsFor returns the parameters to look up hashes by anchors, nil to send all hashes:
// if they are too few, or the parameters are not there yet. pipe.mu is held.
func (a *AsyncClient) paramsFor(hashes []byte, hashLen int) *anchorsParams {
	if a.anchors.minHashes == 0 || hashLen == 0 || hashLen > netproto.MaxHashLen || len(hashes)/hashLen < a.anchors.minHashes {
		return nil
	}
	params := a.params(hashLen)
	if params == nil || params.stride == 0 {
		return nil
	}
	return params
}

// beginAnchors submits the first exchange of a lookup by anchors. pipe.mu is held.
func (a *AsyncClient) beginAnchors(params *anchorsParams, ac *asyncCall, r request) (api.Hit, bool, error) {
	ac.plan, ac.hashLen = new(anchorplan.Plan), r.hashLen
	return a.submitPlan(ac, r.numTokens, anchorplan.FirstSize(r.blob, r.hashLen, params.stride, params.unit), func() error {
		ac.plan.Begin(r.blob, r.hashLen, params.stride, params.unit)
		return nil
	})
}

// params returns the server's parameters, nil if they are not there yet. Once a connection
// it queues the request for them. pipe.mu is held.
func (a *AsyncClient) params(hashLen int) *anchorsParams {
	dials := a.pipe.dialer.dials.Load()
	if params := a.anchors.params.Load(); params != nil && params.dials == dials {
		return params
	}
	if cl := a.paramsCall; cl != nil && cl.state == callDone {
		a.paramsCall = nil
		var reply anchorsAnswer
		err := cl.err
		if err == nil {
			err = reply.copyFrom(cl.frames, []byte{netproto.AnchorsParams})
		}
		if params, err := newAnchorsParams(a.paramsDials, reply, err); err == nil {
			a.anchors.params.Store(params)
			if params.dials == dials {
				return params
			}
		}
	}
	if a.paramsCall == nil && !a.pipe.closed {
		a.paramsDials = dials
		a.paramsCall = &call{request: newParamsRequest(hashLen), async: &asyncCall{client: a, discarded: true}}
		a.pipe.enqueue(a.paramsCall)
		a.pipe.wakeWriter()
	}
	return nil
}

// submitPlan submits an exchange. fill makes its anchors, and its blob of at most size
// bytes.
func (a *AsyncClient) submitPlan(ac *asyncCall, numTokens uint32, size int, fill func() error) (api.Hit, bool, error) {
	ac.exchanges++
	cl := &call{
		request: request{tag: netproto.TagAnchors, numTokens: numTokens, hashLen: ac.hashLen, anchors: &ac.plan.Anchors},
		async:   ac,
	}
	return a.submit(cl, size, func() error {
		err := fill()
		cl.blob = ac.plan.Blob
		return err
	})
}

// continueAnchors takes the answer to an exchange and removes the call from pending. If the
// answer determines the hit, it returns the hit, ready. Otherwise it submits the next
// exchange, or sets the call's plan to nil: the lookup must then send all hashes.
func (a *AsyncClient) continueAnchors(cl *call, r request) (hit api.Hit, ready bool, err error) {
	a.removePending(cl)
	plan := cl.async.plan
	var more anchorsMore
	err = cl.err
	if err == nil {
		var reply anchorsAnswer
		if err = reply.copyFrom(cl.frames, []byte{netproto.AnchorsHit, netproto.AnchorsMore}); err == nil {
			hit, more, err = reply.parse()
		}
	}
	refused := errors.Is(err, ErrRefused)
	if errors.Is(err, ErrNotAllowed) {
		a.anchors.params.Store(&anchorsParams{dials: a.pipe.dialer.dials.Load()})
	}
	switch {
	case err != nil && !refused:
		return hit, true, err
	case err == nil && !more.undetermined:
		return hit, true, nil
	case r.hashLen != cl.async.hashLen || uint32(len(r.blob)/r.hashLen) != plan.NumHashes || r.numTokens != cl.numTokens:
		return hit, true, fmt.Errorf("%w: a poll of %q with other hashes than before", ErrRequest, cl.async.id)
	case refused || cl.async.exchanges == 2:
		cl.async.plan = nil
		return hit, false, nil
	}
	next := &asyncCall{client: a, id: cl.async.id, deadline: cl.async.deadline, exchanges: cl.async.exchanges, plan: plan, hashLen: r.hashLen}
	return a.submitPlan(next, r.numTokens, min(plan.NextSize(more.More), len(r.blob)), func() error {
		if err := plan.Narrow(r.blob, more.More); err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		return nil
	})
}
