package client

import (
	"container/list"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// AsyncClient makes lookups of a Client without waiting: a scheduler polls for each answer once a
// scheduling step, as with vLLM's asynchronous lookup client. Lookups may be answered in any order.
// Its methods are safe for concurrent use and never wait for the network. It ends with its Client.
//
// A request id is any string. It is pending from the Poll that sends its lookup to the Poll that
// returns the answer, or to its Discard. It may be used again after that; a late answer never goes to
// a later lookup.
//
// At most 16,384 ids are pending. Then the answered id that was not polled for the longest time is
// removed; another Poll of it sends its lookup again. If there is none, the new lookup returns 0 and
// ErrPending at once. The same error bounds the copied hashes that have no answer by 256 MiB.
type AsyncClient struct {
	transport *transport
	maxIDs    int
	maxBytes  int // of copied hashes

	// guarded by transport.mu:
	pending     map[string]*call
	answered    *list.List // of *call, the oldest answer first
	copiedBytes int
}

// asyncCall is the part of a call that only an AsyncClient's has. transport.mu guards it.
type asyncCall struct {
	client       *AsyncClient
	id           string
	deadline     time.Time
	answeredElem *list.Element // in client.answered, nil until it is answered
	discarded    bool          // no longer pending
}

const (
	maxPendingIDs   = 16384
	maxPendingBytes = 256 << 20
)

// Async returns an asynchronous client on the connection of c.
func (c *Client) Async() *AsyncClient {
	return &AsyncClient{
		transport: c.transport, maxIDs: maxPendingIDs, maxBytes: maxPendingBytes,
		pending: map[string]*call{}, answered: list.New(),
	}
}

// Poll returns the answer to a lookup, once, when ready is true. The first Poll of an id sends the
// lookup with a copy of hashes, which are as for Client.Lookup. Later ones use the id alone until the
// answer is returned.
//
// A lookup that fails, or is not answered within the client's timeout, is ready with a hit of 0, in the first Poll
// if no lookup waits for a connection. err is then an error of a Client or ErrPending. A caller may ignore it and treat the lookup as a miss.
func (a *AsyncClient) Poll(requestID string, numTokens int64, hashes coordinator.Hashes) (hit api.Hit, ready bool, err error) {
	t := a.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	if cl := a.pending[requestID]; cl != nil {
		return a.takeAnswer(cl)
	}
	t.mu.Unlock()
	r, err := lookupRequest(numTokens, hashes)
	r.blob = slices.Clone(r.blob) // without mu, as it may take as long as a round trip
	t.mu.Lock()
	if err != nil {
		return api.Hit{}, true, err
	}
	if cl := a.pending[requestID]; cl != nil {
		return a.takeAnswer(cl)
	}
	if err := a.reserve(len(r.blob)); err != nil {
		return api.Hit{}, true, err
	}
	cl := &call{request: r, async: &asyncCall{client: a, id: requestID, deadline: time.Now().Add(t.timeout)}}
	a.pending[requestID] = cl
	a.copiedBytes += len(r.blob)
	if t.enqueue(cl); cl.state == callDone {
		return a.takeAnswer(cl)
	}
	return api.Hit{}, false, nil
}

// reserve removes answered ids until one more fits. It returns ErrPending if that, or its bytes,
// exceed the bounds. mu is held.
func (a *AsyncClient) reserve(bytes int) error {
	switch {
	case a.transport.closed:
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
func (a *AsyncClient) takeAnswer(cl *call) (hit api.Hit, ready bool, err error) {
	inVain := false
	switch {
	case cl.state == callDone:
		hit, err = cl.hit, cl.err
	case !cl.async.expired():
		return api.Hit{}, false, nil
	default:
		err = a.transport.unansweredError(cl, os.ErrDeadlineExceeded)
		inVain = a.transport.waitedInVain(cl, os.ErrDeadlineExceeded)
	}
	a.removePending(cl)
	if inVain {
		a.transport.failFast()
	}
	return hit, true, err
}

// removePending removes a call, and abandons it if it is not done.
func (a *AsyncClient) removePending(cl *call) {
	delete(a.pending, cl.async.id)
	cl.async.discarded = true
	if cl.async.answeredElem != nil {
		a.answered.Remove(cl.async.answeredElem)
	}
	if cl.state != callDone {
		a.copiedBytes -= len(cl.blob)
		a.transport.abandonLocked(cl)
	}
}

// expired reports whether the deadline has passed.
func (c *asyncCall) expired() bool { return !time.Now().Before(c.deadline) }

// onDone adds a call that is done to answered. mu is held.
func (c *asyncCall) onDone(cl *call) {
	if !c.discarded {
		c.client.copiedBytes -= len(cl.blob)
		cl.blob = nil
		c.answeredElem = c.client.answered.PushBack(cl)
	}
}

// Discard removes a pending id, for a request that has finished or was aborted. A late answer is
// dropped. It does nothing if the id is not pending.
func (a *AsyncClient) Discard(requestID string) {
	a.transport.mu.Lock()
	defer a.transport.mu.Unlock()
	if cl := a.pending[requestID]; cl != nil {
		a.removePending(cl)
	}
}
