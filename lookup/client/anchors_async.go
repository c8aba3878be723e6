package client

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/netproto"
)

// anchoring returns how a lookup is made by anchors, nil where it takes all hashes. If
// the server has not been asked yet how it looks up by anchors, it is asked now, and
// nobody waits for that. The pipe's mutex is held.
func (a *AsyncClient) anchoring(hashes []byte, hashLen int) *anchoring {
	if a.anchors.from == 0 || hashLen == 0 || hashLen > netproto.MaxHashLen || len(hashes)/hashLen < a.anchors.from {
		return nil
	}
	know := a.learn(hashLen)
	if know == nil || know.stride == 0 {
		return nil
	}
	return know
}

// begin sends the first exchange.
func (a *AsyncClient) begin(know *anchoring, of *asyncCall, numTokens uint32, hashes []byte, hashLen int) (uint32, bool, error) {
	of.plan, of.hashLen = new(anchorplan.Plan), hashLen
	return a.sendPlan(of, numTokens, anchorplan.FirstSize(hashes, hashLen, know.stride, know.unit), func() error {
		of.plan.Begin(hashes, hashLen, know.stride, know.unit)
		return nil
	})
}

// learn returns what is known of the server, nil for nothing yet.
func (a *AsyncClient) learn(hashLen int) *anchoring {
	dials := a.pipe.dialer.dials.Load()
	if know := a.anchors.known.Load(); know != nil && know.dials == dials {
		return know
	}
	if cl := a.learning; cl != nil && cl.state == callDone {
		a.learning = nil
		var reply anchorsFrame
		err := cl.err
		if err == nil {
			err = reply.take(cl.frames, []byte{netproto.AnchorsParams})
		}
		if know, err := newAnchoring(a.learnDials, reply, err); err == nil {
			a.anchors.known.Store(know)
			if know.dials == dials {
				return know
			}
		}
	}
	if a.learning == nil && !a.pipe.closed {
		a.learnDials = dials
		a.learning = &call{request: paramsRequest(hashLen), async: &asyncCall{client: a, gone: true}}
		a.pipe.enqueue(a.learning)
		a.pipe.rouse()
	}
	return nil
}

// sendPlan sends an exchange whose anchors and blob, of at most so many bytes, fill makes.
func (a *AsyncClient) sendPlan(of *asyncCall, numTokens uint32, size int, fill func() error) (uint32, bool, error) {
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

// goOn takes the answer to an exchange. Where it determines the hit, that is ready;
// else the next exchange is sent, or, if the call has no plan any more, the lookup
// takes all hashes. The call is no longer pending.
func (a *AsyncClient) goOn(cl *call, numTokens uint32, hashes []byte, hashLen int) (hitTokens uint32, ready bool, err error) {
	a.forget(cl)
	plan := cl.async.plan
	hit, more, err := uint64(0), anchorsMore{}, cl.err
	if err == nil {
		var reply anchorsFrame
		if err = reply.take(cl.frames, []byte{netproto.AnchorsHit, netproto.AnchorsMore}); err == nil {
			hit, more, err = reply.answer()
		}
	}
	refused := errors.Is(err, ErrRefused)
	switch {
	case err != nil && !refused:
		return 0, true, err
	case err == nil && !more.asked:
		hitTokens, err = fitHit(hit)
		return hitTokens, true, err
	case hashLen != cl.async.hashLen || uint32(len(hashes)/hashLen) != plan.NumHashes || numTokens != cl.numTokens:
		return 0, true, fmt.Errorf("%w: a poll of %q with other hashes than before", ErrRequest, cl.async.id)
	case refused || cl.async.asked == 2:
		cl.async.plan = nil
		return 0, false, nil
	}
	next := &asyncCall{client: a, id: cl.async.id, until: cl.async.until, asked: cl.async.asked, plan: plan, hashLen: hashLen}
	return a.sendPlan(next, numTokens, min(plan.NextSize(more.More), len(hashes)), func() error {
		if err := plan.Narrow(hashes, more.More); err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		return nil
	})
}
