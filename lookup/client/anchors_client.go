package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/netproto"
)

// WithAnchors makes a Client look up prompts of at least so many hashes by anchors:
// a few of the hashes, in up to three exchanges, in place of all of them. The hit
// is the same for hashes that are chained as vLLM's are: two prompts with an equal
// hash at one place are equal in front of it. Where the server does not serve that,
// the client finds out once a connection and sends all hashes. 0 means never.
// Default: DefaultAnchorsFrom, and never for an AsyncClient. Batch sends all hashes.
func WithAnchors(from int) Option {
	return func(c *config) { c.anchorsFrom, c.anchorsSet = max(from, 0), true }
}

// DefaultAnchorsFrom is from how many hashes on a Client asks by anchors: where
// two exchanges cost about as much as one with all hashes, on one machine. Between
// machines it pays off earlier.
const DefaultAnchorsFrom = 4096

// anchorsParams are the parameters of lookups by anchors at a server.
type anchorsParams struct {
	dials  int64  // connections made when the server was asked
	stride int    // hashes a block; 0: not served
	unit   uint32 // blocks that hits are multiples of
}

// plans are the memory of lookups by anchors.
var plans = sync.Pool{New: func() any { return new(anchorplan.Plan) }}

// maxKeptBytes is the largest blob in bytes that a pooled plan keeps, and the largest head
// of a request, which may hold that blob, that a connection does: that of a second
// exchange about 131,072 hashes is 64 KiB.
const maxKeptBytes = 256 << 10

// lookupByAnchors looks up by anchors. done is false where it takes all hashes.
func (c *Client) lookupByAnchors(ctx context.Context, until time.Time, numTokens uint32, hashes []byte, hashLen int) (hit uint64, done bool, err error) {
	params, err := c.fetchAnchorsParams(ctx, until, hashLen)
	if err != nil || params.stride == 0 {
		return 0, false, err
	}
	plan := plans.Get().(*anchorplan.Plan)
	defer releasePlan(plan)
	plan.Begin(hashes, hashLen, params.stride, params.unit)
	for exchange := 1; ; exchange++ {
		hit, more, err := c.askAnchors(ctx, until, numTokens, plan, hashLen)
		switch {
		case errors.Is(err, ErrRefused), more.asked && exchange == 2:
			return 0, false, nil
		case err != nil || !more.asked:
			return hit, err == nil, err
		}
		if err := plan.Narrow(hashes, more.More); err != nil {
			return 0, false, fmt.Errorf("%w: %w", ErrReply, err)
		}
	}
}

// releasePlan gives the memory of a plan back.
func releasePlan(plan *anchorplan.Plan) {
	if cap(plan.Blob) > maxKeptBytes {
		plan.Blob = nil
	}
	plans.Put(plan)
}

// anchorsState is what a Client keeps about lookups by anchors.
type anchorsState struct {
	from   int
	params atomic.Pointer[anchorsParams]
}

// fetchAnchorsParams returns how the server looks up by anchors, and asks it unless it
// has been asked over the present connections.
func (c *Client) fetchAnchorsParams(ctx context.Context, until time.Time, hashLen int) (*anchorsParams, error) {
	dials := c.dialer.dials.Load()
	if params := c.anchors.params.Load(); params != nil && params.dials == dials {
		return params, nil
	}
	frame, err := c.exchangeAnchors(ctx, until, paramsRequest(hashLen), netproto.AnchorsParams)
	params, err := newAnchorsParams(dials, frame, err)
	if err == nil {
		c.anchors.params.Store(params)
	}
	return params, err
}

// paramsRequest asks how the server looks up by anchors.
func paramsRequest(hashLen int) request {
	return request{tag: netproto.TagAnchors, hashLen: hashLen, anchors: new(netproto.Anchors)}
}

// newAnchorsParams returns what the reply to a paramsRequest says. A stride of 0 says that
// nothing is served, and so does the refusal of a server that does not params the request.
func newAnchorsParams(dials int64, reply anchorsFrame, err error) (*anchorsParams, error) {
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

// anchorsMore is an undetermined answer: the blocks that would decide it.
type anchorsMore struct {
	asked bool
	anchorplan.More
}

func (c *Client) askAnchors(ctx context.Context, until time.Time, numTokens uint32, plan *anchorplan.Plan, hashLen int) (hit uint64, more anchorsMore, err error) {
	r := request{tag: netproto.TagAnchors, numTokens: numTokens, hashLen: hashLen, blob: plan.Blob, anchors: &plan.Anchors}
	frame, err := c.exchangeAnchors(ctx, until, r, netproto.AnchorsHit, netproto.AnchorsMore)
	if err != nil {
		return 0, more, err
	}
	return frame.answer()
}

// anchorsFrame is a reply to a request by anchors, copied.
type anchorsFrame struct {
	kind    byte
	numbers [12]byte
	n       int
}

// answer reads the reply to anything but a paramsRequest.
func (f *anchorsFrame) answer() (hit uint64, more anchorsMore, err error) {
	numbers := f.numbers[:f.n]
	var tokens uint32
	if f.kind == netproto.AnchorsHit && netproto.ParseAnchorsReply(numbers, &tokens) {
		return uint64(tokens), more, nil
	}
	more.asked = true
	if f.kind != netproto.AnchorsMore || !netproto.ParseAnchorsReply(numbers, &more.Proven, &more.Claimed, &more.End) {
		return 0, anchorsMore{}, fmt.Errorf("%w: anchors: %d bytes of kind %d", ErrReply, f.n, f.kind)
	}
	return 0, more, nil
}

// exchangeAnchors makes a request by anchors and returns its reply, which is of one
// of the kinds.
func (c *Client) exchangeAnchors(ctx context.Context, until time.Time, r request, kinds ...byte) (reply anchorsFrame, err error) {
	var frames [][]byte
	if c.pipe != nil {
		if frames, err = c.pipe.answer(ctx, until, r); err != nil {
			return reply, err
		}
		return reply, reply.take(frames, kinds)
	}
	conn, err := c.exchange(ctx, until, &r)
	if err != nil {
		return reply, err
	}
	err = reply.take(conn.frames, kinds)
	if errors.Is(err, ErrReply) {
		c.pool.put(conn, err)
	} else {
		c.pool.put(conn, nil)
	}
	return reply, err
}

// take copies a reply.
func (f *anchorsFrame) take(frames [][]byte, kinds []byte) error {
	if err := refusal(frames); err != nil {
		return err
	}
	if len(frames) == 2 && len(frames[0]) == 1 && len(frames[1]) <= len(f.numbers) {
		f.kind, f.n = frames[0][0], copy(f.numbers[:], frames[1])
		for _, kind := range kinds {
			if f.kind == kind {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: anchors with %d frames, the first %x", ErrReply, len(frames), frames[0])
}
