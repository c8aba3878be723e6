package client

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/netproto"
)

// AsyncClient makes lookups that nobody waits for: a scheduler polls for the
// answer once a step, as the reference's asynchronous client lets it. It has one
// connection, which a goroutine of its own owns; lookups under way may overtake
// each other. All methods are safe for concurrent use, and but for Reset and Close
// none waits for the network.
//
// # Identifiers
//
// A request id is anything the caller likes. It is pending from the Poll that
// sends the lookup to the Poll that returns the answer, or to its Discard, and may
// be used again after that: an answer is never given to a later use of its id.
//
// # Memory
//
// At most as many ids are pending as WithPending says. Past that, the ids that
// were answered longest ago and not polled since are forgotten, and asked anew if
// they are polled again; while there are none, a new lookup is answered at once by
// 0 and ErrPending. The same answer gets a lookup whose copied hashes would exceed
// the bytes that WithPending says. A copy is released when it is written, and an
// id discarded costs nothing, but that at most 1,024 requests are under way until
// they are answered.
type AsyncClient struct {
	pipe    *pipe
	timeout time.Duration
	anchors anchorsState
	maxIDs  int
	maxSize int

	// guarded by pipe.mu:
	pending     map[string]*call
	paramsCall  *call      // asks how the server looks up by anchors, nil if none is under way
	paramsDials int64      // connections made when that was queued
	answered    *list.List // of *call, the oldest first
	size        int        // bytes of hashes that are copied
}

// Defaults of WithPending.
const (
	DefaultPendingIDs   = 16384
	DefaultPendingBytes = 256 << 20
)

// WithPending bounds what an AsyncClient keeps: ids that are pending, and bytes of
// hashes that wait to be sent. Default: DefaultPendingIDs and DefaultPendingBytes.
func WithPending(ids, bytes int) Option {
	return func(c *config) { c.pendingIDs, c.pendingSize = max(ids, 1), max(bytes, 0) }
}

// asyncCall is what a call of an AsyncClient has beside the others'.
type asyncCall struct {
	client  *AsyncClient
	id      string
	copied  *bufpool.Buffer  // holds the blob until it is written, unless plan does
	size    int              // of the blob, while it counts
	plan    *anchorplan.Plan // of a lookup by anchors, else nil
	hashLen int              // of that, in bytes
	asked   int              // its exchanges so far
	until   time.Time        // zero for never
	place   *list.Element    // in answered, nil while there is no answer
	gone    bool             // discarded
}

// DialAsync connects to a server as [Dial] does. WithTimeout, WithFailOpen,
// WithPending, WithDialer and WithAnchors apply; lookups fail open in any case. The
// AsyncClient must be closed.
func DialAsync(ctx context.Context, addr string, opts ...Option) (*AsyncClient, error) {
	d, err := newDialer(addr, newConfig(opts).dial)
	if err != nil {
		return nil, err
	}
	return dialAsync(ctx, d, opts)
}

func dialAsync(ctx context.Context, d *dialer, opts []Option) (*AsyncClient, error) {
	cfg := newConfig(opts)
	cfg.pipelined = true
	c, err := dialClient(ctx, d, cfg)
	if err != nil {
		return nil, err
	}
	a := &AsyncClient{
		pipe: c.pipe, timeout: cfg.timeout, maxIDs: cfg.pendingIDs, maxSize: cfg.pendingSize,
		pending: map[string]*call{}, answered: list.New(),
	}
	if cfg.anchorsSet {
		a.anchors.from = cfg.anchorsFrom
	}
	return a, nil
}

// Poll asks for a lookup's answer: not ready until it is there, then the answer,
// once. The first Poll of an id sends the lookup, with a copy of hashes, which are
// as for Client.Lookup; what later ones say beside the id is ignored until the
// answer is given.
//
// A lookup that fails, or is not answered within the timeout, is ready with a hit
// of 0. err then says why, with the errors of a Client or ErrPending; who takes it
// for a miss, as the reference does, needs not look at it.
//
// With WithAnchors, off by default here, a prompt of as many hashes is looked up by
// anchors. Its hashes are not copied; they are read again by the Polls that follow,
// which must give the same ones and make the exchanges that may still be needed.
func (a *AsyncClient) Poll(requestID string, numTokens int64, hashes netproto.Hashes) (hit api.Hit, ready bool, err error) {
	r, invalid := hashesRequest(netproto.TagLookup, numTokens, hashes)
	p := a.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	until := untilAfter(a.timeout)
	if cl := a.pending[requestID]; cl != nil {
		hit, ready, err := a.take(cl)
		if ready || cl.state != callDone {
			return hit, ready, err
		}
		if hit, ready, err = a.continueAnchors(cl, r); ready || cl.async.plan != nil {
			return hit, ready, err
		}
		until = cl.async.until // which takes all hashes
	} else if invalid != nil {
		return hit, true, invalid
	} else if params := a.paramsFor(r.blob, r.hashLen); params != nil {
		return a.begin(params, &asyncCall{client: a, id: requestID, until: until}, r)
	}
	blob := r.blob
	r.blob = nil
	cl := &call{request: r, async: &asyncCall{client: a, id: requestID, until: until}}
	return a.send(cl, len(blob), func() error {
		cl.async.copied = bufferOf(blob)
		cl.blob = cl.async.copied.B
		return nil
	})
}

// send makes a call pending and queues it once fill has made its blob, of at most so
// many bytes. The pipe's mutex is held, but not while fill works, which may take as long
// as a round trip. The id is pending meanwhile, and its answer not ready.
func (a *AsyncClient) send(cl *call, size int, fill func() error) (hit api.Hit, ready bool, err error) {
	if err := a.reserve(size); err != nil {
		return api.Hit{}, true, err
	}
	cl.state, cl.async.size = callPreparing, size
	a.size += size
	a.pending[cl.async.id] = cl
	a.pipe.mu.Unlock()
	err = fill()
	a.pipe.mu.Lock()
	a.size += len(cl.blob) - cl.async.size
	cl.state, cl.async.size = callQueued, len(cl.blob)
	switch {
	case cl.async.gone: // discarded, or late, meanwhile
		cl.async.releaseBlob()
		return api.Hit{}, false, nil
	case err != nil:
		a.forget(cl)
		return api.Hit{}, true, err
	case a.pipe.closed:
		a.forget(cl)
		return api.Hit{}, true, connectError(errClosed)
	}
	a.pipe.enqueue(cl)
	a.pipe.wakeWriter()
	return api.Hit{}, false, nil
}

// reserve makes room for one more id and its hashes.
func (a *AsyncClient) reserve(bytes int) error {
	switch {
	case a.pipe.closed:
		return connectError(errClosed)
	case a.size+bytes > a.maxSize:
		return fmt.Errorf("%w: their hashes fill %d bytes", ErrPending, a.maxSize)
	}
	for len(a.pending) >= a.maxIDs {
		oldest := a.answered.Front()
		if oldest == nil {
			return fmt.Errorf("%w: %d", ErrPending, len(a.pending))
		}
		a.forget(oldest.Value.(*call))
	}
	return nil
}

// take returns the answer of a pending call, once. It is not ready though the call
// is done where a lookup by anchors has to go on.
func (a *AsyncClient) take(cl *call) (api.Hit, bool, error) {
	if cl.state != callDone {
		if !cl.async.late() {
			return api.Hit{}, false, nil
		}
		a.forget(cl)
		return api.Hit{}, true, a.pipe.unanswered(os.ErrDeadlineExceeded)
	}
	if cl.async.plan != nil {
		return api.Hit{}, false, nil
	}
	a.forget(cl)
	if cl.err != nil {
		return api.Hit{}, true, cl.err
	}
	hit, err := newHit(cl.hit)
	return hit, true, err
}

// forget ends the use of an id, and its call where that is still under way.
func (a *AsyncClient) forget(cl *call) {
	delete(a.pending, cl.async.id)
	cl.async.gone = true
	if cl.async.place != nil {
		a.answered.Remove(cl.async.place)
	}
	a.pipe.abandon(cl)
	if cl.state == callQueued {
		cl.state = callDone
		cl.async.releaseBlob()
	}
}

// late tells whether the time for the answer is over.
func (c *asyncCall) late() bool { return !c.until.IsZero() && !time.Now().Before(c.until) }

// completed records that a call is done. The pipe's mutex is held.
func (c *asyncCall) completed(cl *call) {
	c.releaseBlob()
	if !c.gone {
		c.place = c.client.answered.PushBack(cl)
	}
}

// releaseBlob releases the copy of the hashes, when nothing reads it any longer.
func (c *asyncCall) releaseBlob() {
	c.client.size -= c.size
	c.size = 0
	if c.plan != nil {
		c.plan.Blob = nil
	}
	if c.copied != nil {
		c.copied.Release()
		c.copied = nil
	}
}

// Discard ends the use of an id, when its request has finished or was aborted. An
// answer that comes later is dropped. An id that is not pending is no mistake.
func (a *AsyncClient) Discard(requestID string) {
	a.pipe.mu.Lock()
	defer a.pipe.mu.Unlock()
	if cl := a.pending[requestID]; cl != nil {
		a.forget(cl)
	}
}

// Reset makes the server forget every block, after the lookups that were sent
// before it, and waits for that until ctx ends or for the timeout. Answers of
// earlier lookups may still be polled; who does not want them discards them.
func (a *AsyncClient) Reset(ctx context.Context) error {
	_, err := a.pipe.answer(ctx, untilAfter(a.timeout), request{tag: netproto.TagReset})
	return err
}

// Close closes the connection and waits for its goroutine. What is pending is
// answered by 0 and ErrConnect, as is every later Poll.
func (a *AsyncClient) Close() error {
	a.pipe.close()
	return nil
}
