package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// remoteHandler serves the requests of one connection over a backend.
//
// A request is dispatched to the workers when those before it that it must not overtake
// have completed: a write waits for all, a read for writes only. Its reply is written on
// the event loop, which keeps order and the bound on unsent replies, once the requests
// before it with an equal envelope have theirs.
//
// It belongs to the event loop but for what mu guards.
type remoteHandler struct {
	session *session

	current       *remoteRequest   // being received
	pending       []*remoteRequest // not dispatched yet, in order of arrival
	activeReads   int              // dispatched and not complete
	activeWrites  int              // likewise, at most one
	readQueue     connQueue
	writeQueue    connQueue
	last          map[string]*remoteRequest // the last unanswered request of each envelope
	heldBytes     int                       // payloads that wait for replies of equal envelopes
	wakeEventLoop func()                    // makes the event loop call resume; from any goroutine

	mu        sync.Mutex
	completed []*remoteRequest // by workers, and not seen by the event loop yet
	closed    bool             // the connection is gone

	connCtx    context.Context // ends with the connection
	cancelConn context.CancelFunc
}

func newRemoteHandler(s *session, wakeEventLoop func()) *remoteHandler {
	h := &remoteHandler{session: s, last: map[string]*remoteRequest{}, wakeEventLoop: wakeEventLoop}
	h.connCtx, h.cancelConn = context.WithCancel(context.Background())
	return h
}

func (h *remoteHandler) remote() *lookup.Remote { return h.session.server.remote }

// begin implements requestHandler.
func (h *remoteHandler) begin(q *netproto.Request) bool {
	r := h.newRequest(q)
	h.current = r
	if r.err = h.prepare(r, q); r.err != nil || r.need == 0 {
		return false
	}
	if r.err = h.overLimit(); r.err != nil {
		r.refused = true
		return false
	}
	if h.remote().Down() {
		r.reject(backend.ErrUnavailable)
		return false
	}
	return true
}

func (h *remoteHandler) newRequest(q *netproto.Request) *remoteRequest {
	return &remoteRequest{handler: h, tag: q.Tag, place: q.Rank, hashLen: q.HashLen, numHashes: q.NumHashes}
}

// prepare checks a request that has hashes and finds out how many of them it needs.
func (h *remoteHandler) prepare(r *remoteRequest, q *netproto.Request) (err error) {
	service := h.session.server.service
	if r.tag == netproto.TagAnchors {
		if q.Anchors.NumHashes == 0 {
			return nil // it asks for the parameters
		}
		return service.AnchorsError()
	}
	if r.isWrite() {
		r.need = q.NumHashes * q.HashLen
		return service.CheckRank(q.Rank)
	}
	if err := h.session.server.checkHashes(q); err != nil {
		return err
	}
	var n int
	r.numTokens, n, err = h.remote().Needed(q.NumTokens, q.Unaligned, q.NumHashes)
	r.need = n * q.HashLen
	return err
}

// overLimit returns why the connection may have no further request unanswered.
func (h *remoteHandler) overLimit() error {
	limits := &h.session.server.cfg.Limits
	switch {
	case int(h.session.inFlight.Load()) >= limits.MaxInFlight:
		return fmt.Errorf("%w: %d", ErrInFlight, limits.MaxInFlight)
	case h.heldBytes > limits.MaxUnsent:
		return fmt.Errorf("%w: %d bytes of replies", ErrInFlight, h.heldBytes)
	}
	return nil
}

// add implements requestHandler.
func (h *remoteHandler) add(_ *netproto.Request, hashes []byte) bool { return h.current.add(hashes) }

// end implements requestHandler.
func (h *remoteHandler) end(q *netproto.Request) {
	r := h.current
	h.current = nil
	if r == nil {
		r = h.newRequest(q)
	}
	if q.Problem != nil {
		r.err, r.refused = q.Problem, false
	}
	if err := h.overLimit(); err != nil { // whatever else is wrong: see enqueueReply
		r.err, r.refused = err, true
	}
	r.envelope, r.began = bytes.Clone(q.Envelope), h.session.began
	if !h.enqueueReply(r) {
		r.release()
		return
	}
	switch {
	case r.err != nil || r.skipped || q.Tag == netproto.TagAnchors:
		h.finish(r)
	case q.Tag == netproto.TagPing:
		r.payload = bytes.Clone(q.Echo)
		h.finish(r)
	case q.Tag == netproto.TagLookup && r.hashes == nil:
		h.remote().CountLookup(0, 0, 0)
		h.finish(r)
	default:
		h.enqueue(r)
	}
}

// enqueue dispatches a request, or keeps it until those before it have completed; a read
// is kept at most for the backend's timeout.
func (h *remoteHandler) enqueue(r *remoteRequest) {
	h.pending = append(h.pending, r)
	h.dispatch()
	if r.isRead() && r.deadline.IsZero() {
		timeout := h.remote().Config().Timeout
		r.deadline = time.Now().Add(timeout)
		time.AfterFunc(timeout, h.wake)
	}
}

// dispatch hands to the workers what may start.
func (h *remoteHandler) dispatch() {
	for len(h.pending) > 0 && h.session.sendErr == nil {
		r := h.pending[0]
		if h.activeWrites > 0 || r.isWrite() && h.activeReads > 0 {
			return
		}
		h.pending[0] = nil
		h.pending = h.pending[1:]
		h.start(r)
	}
}

// start submits a request to its pool of workers.
func (h *remoteHandler) start(r *remoteRequest) {
	if r.tag == netproto.TagStat { // it only keeps its place in the order
		h.finish(r)
		return
	}
	cfg, pools := h.remote().Config(), h.session.server.workers
	timeout, active, pool, queue := cfg.Timeout, &h.activeReads, pools.reads, &h.readQueue
	if r.isWrite() {
		timeout, active, pool, queue = cfg.WriteTimeout, &h.activeWrites, pools.writes, &h.writeQueue
	}
	if r.deadline.IsZero() { // it was not kept
		r.deadline = time.Now().Add(timeout)
	}
	if !pool.submit(queue, r) {
		r.reject(fmt.Errorf("%w: %d", ErrBusy, cfg.Queue))
		r.release()
		h.finish(r)
		return
	}
	*active++
}

// complete hands a request back to the event loop. It is called by a worker.
func (h *remoteHandler) complete(r *remoteRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.completed = append(h.completed, r)
	if len(h.completed) == 1 {
		h.wakeEventLoop() // under the lock: the connection is not released before it is closed here
	}
}

// wake has the event loop call resume, unless the connection is gone.
func (h *remoteHandler) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wakeEventLoop()
	}
}

// resume implements requestHandler.
func (h *remoteHandler) resume() {
	completed := h.takeCompleted()
	if len(completed) > 0 {
		h.session.lastActive.Store(monotime.Now()) // idle begins now
	}
	for _, r := range completed {
		if h.session.sendErr != nil {
			break
		}
		if r.isWrite() {
			h.activeWrites--
		} else {
			h.activeReads--
		}
		h.finish(r)
	}
	h.expirePending()
	h.dispatch()
}

// takeCompleted returns the requests completed since the last call.
func (h *remoteHandler) takeCompleted() []*remoteRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	completed := h.completed
	h.completed = nil
	return completed
}

// expirePending answers the reads whose time is up before they could be dispatched,
// behind a write that takes long.
func (h *remoteHandler) expirePending() {
	now := time.Now()
	var late []*remoteRequest
	h.pending = slices.DeleteFunc(h.pending, func(r *remoteRequest) bool {
		is := r.isRead() && !r.deadline.IsZero() && !r.deadline.After(now)
		if is {
			late = append(late, r)
		}
		return is
	})
	for _, r := range late {
		if r.release(); h.session.sendErr == nil {
			r.expire()
			h.finish(r)
		}
	}
}

// discard implements requestHandler.
func (h *remoteHandler) discard() {
	if h.current != nil {
		h.current.release()
		h.current = nil
	}
}

// close implements requestHandler. Dispatched requests end by themselves: writes when they are
// done, reads at once, unless lookups of other connections share their answer.
func (h *remoteHandler) close() {
	h.mu.Lock()
	h.closed, h.completed = true, nil
	h.mu.Unlock()
	h.cancelConn()
	h.discard()
	for _, r := range h.pending {
		r.release()
	}
	h.pending = nil
	clear(h.last)
	h.session.server.inFlight.Add(-h.session.inFlight.Swap(0))
}
