package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/netproto"
)

// anchorsState is a client's state for lookups by anchors.
type anchorsState struct {
	minHashes int // of a prompt that is looked up by anchors; 0: none is
	params    atomic.Pointer[anchorsParams]
}

// anchorsParams are a server's parameters of lookups by anchors. They are valid until the
// next connection is made.
type anchorsParams struct {
	dials  int64  // connections made when the parameters were requested
	stride int    // hashes a block; 0: not served
	unit   uint32 // blocks that hits are multiples of
}

// planPool holds the *anchorplan.Plan of lookups by anchors.
var planPool = sync.Pool{New: func() any { return new(anchorplan.Plan) }}

// maxKeptBytes is the largest blob in bytes that a pooled plan keeps, and the largest head
// of a request, which may hold that blob, that a connection does: that of a second
// exchange about 131,072 hashes is 64 KiB.
const maxKeptBytes = 256 << 10

// lookupByAnchors makes a lookup by anchors. If done is false the lookup must send all
// hashes.
func (c *Client) lookupByAnchors(ctx context.Context, deadline time.Time, numTokens uint32, hashes []byte, hashLen int) (hit api.Hit, done bool, err error) {
	params, err := c.fetchAnchorsParams(ctx, deadline, hashLen)
	if err != nil || params.stride == 0 {
		return hit, false, err
	}
	plan := planPool.Get().(*anchorplan.Plan)
	defer releasePlan(plan)
	plan.Begin(hashes, hashLen, params.stride, params.unit)
	for exchange := 1; ; exchange++ {
		hit, more, err := c.exchangePlan(ctx, deadline, numTokens, plan, hashLen)
		switch {
		case errors.Is(err, ErrNotAllowed):
			c.anchors.params.Store(&anchorsParams{dials: params.dials})
			return api.Hit{}, false, nil
		case errors.Is(err, ErrRefused), more.undetermined && exchange == 2:
			return api.Hit{}, false, nil
		case err != nil || !more.undetermined:
			return hit, err == nil, err
		}
		if err := plan.Narrow(hashes, more.More); err != nil {
			return api.Hit{}, false, fmt.Errorf("%w: %w", ErrReply, err)
		}
	}
}

// releasePlan returns a plan to the pool.
func releasePlan(plan *anchorplan.Plan) {
	if cap(plan.Blob) > maxKeptBytes {
		plan.Blob = nil
	}
	planPool.Put(plan)
}

// fetchAnchorsParams returns the server's parameters. It requests them unless no connection
// was made since the last request.
func (c *Client) fetchAnchorsParams(ctx context.Context, deadline time.Time, hashLen int) (*anchorsParams, error) {
	dials := c.dialer.dials.Load()
	if params := c.anchors.params.Load(); params != nil && params.dials == dials {
		return params, nil
	}
	frame, err := c.exchangeAnchors(ctx, deadline, newParamsRequest(hashLen), netproto.AnchorsParams)
	params, err := newAnchorsParams(dials, frame, err)
	if err == nil {
		c.anchors.params.Store(params)
	}
	return params, err
}

// newParamsRequest returns a request for the server's parameters.
func newParamsRequest(hashLen int) request {
	return request{tag: netproto.TagAnchors, hashLen: hashLen, anchors: new(netproto.Anchors)}
}

// newAnchorsParams returns the parameters in a reply. Its stride is 0 if lookups by anchors
// are not served, also if the server refused the request because it does not know it.
func newAnchorsParams(dials int64, reply anchorsAnswer, err error) (*anchorsParams, error) {
	params := &anchorsParams{dials: dials}
	if errors.Is(err, ErrRefused) {
		return params, nil
	}
	if err != nil {
		return nil, err
	}
	var stride uint32
	if !netproto.ParseAnchorsReply(reply.numbers[:reply.n], &stride, &params.unit) || (stride == 0) != (params.unit == 0) {
		return nil, fmt.Errorf("%w: anchors: bad parameters", ErrReply)
	}
	params.stride = int(stride)
	return params, nil
}

// anchorsMore says whether an answer leaves the hit undetermined, and the blocks that
// would determine it.
type anchorsMore struct {
	undetermined bool
	anchorplan.More
}

// exchangePlan makes one exchange of a lookup by anchors.
func (c *Client) exchangePlan(ctx context.Context, deadline time.Time, numTokens uint32, plan *anchorplan.Plan, hashLen int) (hit api.Hit, more anchorsMore, err error) {
	r := request{tag: netproto.TagAnchors, numTokens: numTokens, hashLen: hashLen, blob: plan.Blob, anchors: &plan.Anchors}
	frame, err := c.exchangeAnchors(ctx, deadline, r, netproto.AnchorsHit, netproto.AnchorsMore)
	if err != nil {
		return hit, more, err
	}
	return frame.parse()
}

// anchorsAnswer is a copy of the reply to a request by anchors.
type anchorsAnswer struct {
	kind    byte     // netproto.AnchorsHit, AnchorsMore or AnchorsParams
	numbers [12]byte // up to three of four bytes
	n       int      // bytes of numbers
	hit     api.Hit  // of AnchorsHit with tail boundaries; n is then 0
}

// parse returns the hit, or what is more to be sent. The reply is not one of parameters.
func (f *anchorsAnswer) parse() (hit api.Hit, more anchorsMore, err error) {
	if len(f.hit.TailBoundaries) > 0 {
		return f.hit, more, nil
	}
	numbers := f.numbers[:f.n]
	var tokens uint32
	if f.kind == netproto.AnchorsHit && netproto.ParseAnchorsReply(numbers, &tokens) {
		return api.Hit{Tokens: int64(tokens)}, more, nil
	}
	more.undetermined = true
	if f.kind != netproto.AnchorsMore || !netproto.ParseAnchorsReply(numbers, &more.Proven, &more.Claimed, &more.End) {
		return hit, anchorsMore{}, fmt.Errorf("%w: anchors: %d bytes of kind %d", ErrReply, f.n, f.kind)
	}
	return hit, more, nil
}

// exchangeAnchors makes a request by anchors and returns its reply, or ErrReply unless that
// is of one of the kinds.
func (c *Client) exchangeAnchors(ctx context.Context, deadline time.Time, r request, kinds ...byte) (reply anchorsAnswer, err error) {
	var frames [][]byte
	if c.pipe != nil {
		if frames, err = c.pipe.roundTrip(ctx, deadline, r); err != nil {
			return reply, err
		}
		err = reply.copyFrom(frames, kinds)
		return reply, err
	}
	conn, err := c.exchange(ctx, deadline, &r)
	if err != nil {
		return reply, err
	}
	err = reply.copyFrom(conn.frames, kinds)
	if errors.Is(err, ErrReply) {
		c.pool.put(conn, err)
	} else {
		c.pool.put(conn, nil)
	}
	return reply, err
}

// copyFrom sets the answer to a copy of a reply's frames. It returns ErrReply unless the
// reply is of one of the kinds.
func (f *anchorsAnswer) copyFrom(frames [][]byte, kinds []byte) error {
	if err := refusal(frames); err != nil {
		return err
	}
	if len(frames) == 2 && len(frames[0]) == 1 && slices.Contains(kinds, frames[0][0]) {
		f.kind = frames[0][0]
		if f.kind == netproto.AnchorsHit && len(frames[1]) > maxBareHit {
			var err error
			f.hit, err = readTailHit(frames[1])
			return err
		}
		if len(frames[1]) <= len(f.numbers) {
			f.n = copy(f.numbers[:], frames[1])
			return nil
		}
	}
	return fmt.Errorf("%w: anchors with %d frames, the first %x", ErrReply, len(frames), frames[0])
}
