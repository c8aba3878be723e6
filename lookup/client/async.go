package client

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// AsyncClient makes lookups without waiting: a scheduler polls for each answer once a
// scheduling step, as with vLLM's asynchronous lookup client. It has one connection and
// one goroutine that owns it. Lookups may be answered in any order. All methods are safe
// for concurrent use. Only Reset and Close wait for the network.
//
// # Identifiers
//
// A request id is any string. It is pending from the Poll that sends its lookup to the
// Poll that returns the answer, or to its Discard. It may be used again after that; a
// late answer never goes to a later lookup.
//
// # Memory
//
// WithPending bounds the pending ids. At the bound, the answered id that was not polled
// for the longest time is removed; another Poll of it sends its lookup again. If there is
// none, the new lookup returns 0 and ErrPending at once.
//
// WithPending also bounds the bytes of copied hashes, with the same error. A copy is
// released when it is written. A discarded lookup that was sent still counts towards the
// 1,024 requests in flight until the server answers it.
type AsyncClient struct {
	pipe     *pipe
	timeout  time.Duration
	maxIDs   int
	maxBytes int // of copied hashes

	// guarded by pipe.mu:
	pending     map[string]*call
	answered    *list.List // of *call, the oldest answer first
	copiedBytes int        // bytes of hashes that are copied or being copied
}

// asyncCall is the part of a call that only an AsyncClient's has. pipe.mu guards it.
type asyncCall struct {
	client       *AsyncClient
	id           string
	copied       *bufpool.Buffer // holds the blob until it is written
	size         int             // bytes counted in client.copiedBytes for it
	deadline     time.Time       // zero if none
	answeredElem *list.Element   // in client.answered, nil until it is answered
	discarded    bool            // no longer pending
}

// DialAsync connects to a server as [Dial] does. The options WithTimeout, WithFailOpen,
// WithPending, WithDialer, WithTLS, WithToken, WithTokenFile, WithPool, WithPoolName and
// WithOnInstance apply. The caller must close the AsyncClient.
func DialAsync(ctx context.Context, addr string, opts ...Option) (*AsyncClient, error) {
	d, err := newConfig(opts).dialer(addr)
	if err != nil {
		return nil, err
	}
	return dialAsync(ctx, d, opts)
}

// dialAsync returns an AsyncClient over a dialer.
func dialAsync(ctx context.Context, d *dialer, opts []Option) (*AsyncClient, error) {
	cfg := newConfig(opts)
	cfg.pipelined = true
	c, err := dialClient(ctx, d, cfg)
	if err != nil {
		return nil, err
	}
	return &AsyncClient{
		pipe: c.pipe, timeout: cfg.timeout, maxIDs: cfg.pendingIDs, maxBytes: cfg.pendingBytes,
		pending: map[string]*call{}, answered: list.New(),
	}, nil
}

// Poll returns the answer to a lookup, once, when ready is true. The first Poll of an id
// sends the lookup with a copy of hashes, which are as for Client.Lookup. Later ones use
// the id alone until the answer is returned.
//
// A lookup that fails, or is not answered within the timeout, is ready with a hit of 0. err
// is then an error of a Client or ErrPending. A caller may ignore it and treat the lookup
// as a miss.
func (a *AsyncClient) Poll(requestID string, numTokens int64, hashes coordinator.Hashes) (hit api.Hit, ready bool, err error) {
	r, invalid := hashesRequest(netproto.TagLookup, numTokens, hashes)
	p := a.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if cl := a.pending[requestID]; cl != nil {
		return a.takeAnswer(cl)
	}
	if invalid != nil {
		return api.Hit{}, true, invalid
	}
	blob := r.blob
	r.blob = nil
	return a.submit(&call{request: r, async: &asyncCall{client: a, id: requestID, deadline: deadlineAfter(a.timeout)}}, blob)
}

// submit makes a call pending, copies its blob and queues it. pipe.mu is held, but not during
// the copy, which may take as long as a round trip. Meanwhile the id is pending and not ready.
func (a *AsyncClient) submit(cl *call, blob []byte) (hit api.Hit, ready bool, err error) {
	if err := a.reserve(len(blob)); err != nil {
		return api.Hit{}, true, err
	}
	cl.state, cl.async.size = callPreparing, len(blob)
	a.copiedBytes += len(blob)
	a.pending[cl.async.id] = cl
	a.pipe.mu.Unlock()
	copied := copyBlob(blob)
	a.pipe.mu.Lock()
	cl.state, cl.blob, cl.async.copied = callQueued, copied.B, copied
	switch {
	case cl.async.discarded: // by Discard, or at its deadline, during the copy
		cl.async.releaseBlob()
		return api.Hit{}, false, nil
	case a.pipe.closed:
		a.removePending(cl)
		return api.Hit{}, true, connectError(errClosed)
	}
	a.pipe.enqueue(cl)
	a.pipe.wakeWriter()
	return api.Hit{}, false, nil
}

// reserve removes answered ids until one more fits. It returns ErrPending if that, or a
// copy of its bytes, exceeds the bounds. pipe.mu is held.
func (a *AsyncClient) reserve(bytes int) error {
	switch {
	case a.pipe.closed:
		return connectError(errClosed)
	case a.copiedBytes+bytes > a.maxBytes:
		return fmt.Errorf("%w: their hashes fill %d bytes", ErrPending, a.maxBytes)
	}
	for len(a.pending) >= a.maxIDs {
		oldest := a.answered.Front()
		if oldest == nil {
			return fmt.Errorf("%w: %d", ErrPending, len(a.pending))
		}
		a.removePending(oldest.Value.(*call))
	}
	return nil
}

// takeAnswer returns the answer of a pending call and removes the call.
func (a *AsyncClient) takeAnswer(cl *call) (api.Hit, bool, error) {
	if cl.state != callDone {
		if !cl.async.expired() {
			return api.Hit{}, false, nil
		}
		a.removePending(cl)
		return api.Hit{}, true, a.pipe.unansweredError(os.ErrDeadlineExceeded)
	}
	a.removePending(cl)
	return cl.hit, true, cl.err
}

// removePending removes a call from pending and answered, and abandons it if it is not
// done.
func (a *AsyncClient) removePending(cl *call) {
	delete(a.pending, cl.async.id)
	cl.async.discarded = true
	if cl.async.answeredElem != nil {
		a.answered.Remove(cl.async.answeredElem)
	}
	a.pipe.abandonLocked(cl)
	if cl.state == callQueued {
		cl.state = callDone
		cl.async.releaseBlob()
	}
}

// copyBlob returns a pooled copy of a blob. The caller must release it.
func copyBlob(blob []byte) *bufpool.Buffer {
	b := bufpool.Get()
	b.Grow(len(blob))
	b.B = append(b.B, blob...)
	return b
}

// expired reports whether the deadline has passed.
func (c *asyncCall) expired() bool { return !c.deadline.IsZero() && !time.Now().Before(c.deadline) }

// onDone adds a call that is done to answered. pipe.mu is held.
func (c *asyncCall) onDone(cl *call) {
	c.releaseBlob()
	if !c.discarded {
		c.answeredElem = c.client.answered.PushBack(cl)
	}
}

// releaseBlob releases the copy of the hashes. Nothing reads it any longer.
func (c *asyncCall) releaseBlob() {
	c.client.copiedBytes -= c.size
	c.size = 0
	if c.copied != nil {
		c.copied.Release()
		c.copied = nil
	}
}

// Discard removes a pending id, for a request that has finished or was aborted. A late
// answer is dropped. It does nothing if the id is not pending.
func (a *AsyncClient) Discard(requestID string) {
	a.pipe.mu.Lock()
	defer a.pipe.mu.Unlock()
	if cl := a.pending[requestID]; cl != nil {
		a.removePending(cl)
	}
}

// Reset removes every block of the pool, after the lookups that were sent before it. It
// waits for the answer until ctx ends or the timeout passes. Answers of earlier lookups can
// still be polled, or discarded.
func (a *AsyncClient) Reset(ctx context.Context) error {
	_, err := a.pipe.roundTrip(ctx, deadlineAfter(a.timeout), request{tag: netproto.TagReset})
	return err
}

// Close closes the connection and waits for its goroutines. Pending lookups and later ones
// return 0 and ErrConnect. It may be called again and always returns nil.
func (a *AsyncClient) Close() error {
	a.pipe.close()
	return nil
}
