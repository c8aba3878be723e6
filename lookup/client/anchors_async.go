package client

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/netproto"
)

// paramsFor returns how a lookup is made by anchors, nil where it takes all hashes. If
// the server has not been asked yet how it looks up by anchors, it is asked now, and
// nobody waits for that. The pipe's mutex is held.
func (a *AsyncClient) paramsFor(hashes []byte, hashLen int) *anchorsParams {
	if a.anchors.from == 0 || hashLen == 0 || hashLen > netproto.MaxHashLen || len(hashes)/hashLen < a.anchors.from {
		return nil
	}
	params := a.fetchParams(hashLen)
	if params == nil || params.stride == 0 {
		return nil
	}
	return params
}

// begin sends the first exchange.
func (a *AsyncClient) begin(params *anchorsParams, of *asyncCall, r request) (api.Hit, bool, error) {
	of.plan, of.hashLen = new(anchorplan.Plan), r.hashLen
	return a.sendPlan(of, r.numTokens, anchorplan.FirstSize(r.blob, r.hashLen, params.stride, params.unit), func() error {
		of.plan.Begin(r.blob, r.hashLen, params.stride, params.unit)
		return nil
	})
}

// fetchParams returns the parameters of the server, nil if they are not known yet.
func (a *AsyncClient) fetchParams(hashLen int) *anchorsParams {
	dials := a.pipe.dialer.dials.Load()
	if params := a.anchors.params.Load(); params != nil && params.dials == dials {
		return params
	}
	if cl := a.paramsCall; cl != nil && cl.state == callDone {
		a.paramsCall = nil
		var reply anchorsFrame
		err := cl.err
		if err == nil {
			err = reply.take(cl.frames, []byte{netproto.AnchorsParams})
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
		a.paramsCall = &call{request: paramsRequest(hashLen), async: &asyncCall{client: a, gone: true}}
		a.pipe.enqueue(a.paramsCall)
		a.pipe.wakeWriter()
	}
	return nil
}

// sendPlan sends an exchange whose anchors and blob, of at most so many bytes, fill makes.
func (a *AsyncClient) sendPlan(of *asyncCall, numTokens uint32, size int, fill func() error) (api.Hit, bool, error) {
	of.asked++
	cl := &call{
		request: request{tag: netproto.TagAnchors, numTokens: numTokens, hashLen: of.hashLen, anchors: &of.plan.Anchors},
		async:   of,
	}
	return a.send(cl, size, func() error {
		err := fill()
		cl.blob = of.plan.Blob
		return err
	})
}

// continueAnchors takes the answer to an exchange. Where it determines the hit, that is ready;
// else the next exchange is sent, or, if the call has no plan any more, the lookup
// takes all hashes. The call is no longer pending.
func (a *AsyncClient) continueAnchors(cl *call, r request) (hit api.Hit, ready bool, err error) {
	a.forget(cl)
	plan := cl.async.plan
	tokens, more, err := uint64(0), anchorsMore{}, cl.err
	if err == nil {
		var reply anchorsFrame
		if err = reply.take(cl.frames, []byte{netproto.AnchorsHit, netproto.AnchorsMore}); err == nil {
			tokens, more, err = reply.answer()
		}
	}
	refused := errors.Is(err, ErrRefused)
	switch {
	case err != nil && !refused:
		return hit, true, err
	case err == nil && !more.asked:
		hit, err = newHit(tokens)
		return hit, true, err
	case r.hashLen != cl.async.hashLen || uint32(len(r.blob)/r.hashLen) != plan.NumHashes || r.numTokens != cl.numTokens:
		return hit, true, fmt.Errorf("%w: a poll of %q with other hashes than before", ErrRequest, cl.async.id)
	case refused || cl.async.asked == 2:
		cl.async.plan = nil
		return hit, false, nil
	}
	next := &asyncCall{client: a, id: cl.async.id, until: cl.async.until, asked: cl.async.asked, plan: plan, hashLen: r.hashLen}
	return a.sendPlan(next, r.numTokens, min(plan.NextSize(more.More), len(r.blob)), func() error {
		if err := plan.Narrow(r.blob, more.More); err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		return nil
	})
}
