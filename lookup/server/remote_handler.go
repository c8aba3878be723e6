package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// remoteHandler serves the requests of one connection over a backend.
//
// A request is dispatched to the workers once the requests before it that it must not
// overtake have completed: a write waits for all, a read for writes only. The event loop
// writes its reply, once the requests before it with an equal envelope have theirs.
//
// All fields belong to the event loop, except those that mu guards, the queues, which
// workerPool.mu guards, and session and connCtx, which workers read.
type remoteHandler struct {
	session *session

	current       *remoteRequest   // being received, nil if none
	masks         *maskFrame       // of the request for masks that is being served, nil if none
	pending       []*remoteRequest // not dispatched yet, in order of arrival
	activeReads   int              // dispatched and not completed
	activeWrites  int              // dispatched and not completed, at most one
	readQueue     connQueue
	writeQueue    connQueue
	last          map[string]*remoteRequest // the last unanswered request of each envelope
	heldBytes     int                       // of payloads that wait for replies to equal envelopes
	waking        bool                      // in handleWake
	sharedStats   map[statKey][]byte        // payloads of the stats that this wake has answered
	envelopeBytes int                       // of the envelopes of unanswered requests
	endedBytes    int                       // of the prompts of unanswered requests that have ended
	wakeEventLoop func()                    // makes the event loop call handleWake; from any goroutine

	mu        sync.Mutex
	completed []*remoteRequest // by workers; not taken by the event loop yet
	closed    bool             // the connection is closed

	connCtx    context.Context // ends with the connection
	cancelConn context.CancelFunc
}

func newRemoteHandler(s *session, wakeEventLoop func()) *remoteHandler {
	h := &remoteHandler{session: s, last: map[string]*remoteRequest{}, wakeEventLoop: wakeEventLoop}
	h.connCtx, h.cancelConn = context.WithCancel(context.Background())
	return h
}

// begin implements requestHandler.
func (h *remoteHandler) begin(q *netproto.Request) bool {
	r := h.newRequest(q)
	h.current = r
	if r.err = h.prepare(r, q); r.err != nil || r.neededBytes == 0 {
		return false
	}
	if r.err = h.overLimit(); r.err != nil {
		r.refused = true
		return false
	}
	if h.session.server.backend.Down() {
		r.reject(backend.ErrUnavailable)
		return false
	}
	return true
}

// newRequest returns a remoteRequest for q.
func (h *remoteHandler) newRequest(q *netproto.Request) *remoteRequest {
	s := h.session
	return &remoteRequest{
		handler: h, settings: s.settings, credential: s.credential, pool: s.pool,
		sent: q.Tag, tag: remoteTag(q), groupRank: coordinator.GroupRank(q.GroupRank), hashLen: q.HashLen, numHashes: q.NumHashes,
	}
}

// prepare checks a request that has hashes and sets how many bytes of them it needs.
func (h *remoteHandler) prepare(r *remoteRequest, q *netproto.Request) (err error) {
	if r.pool == nil {
		return errNoPool
	}
	service := r.pool.service
	if r.tag == netproto.TagStorePrompt {
		return r.preparePrompt(q)
	}
	if r.isWrite() {
		r.neededBytes = q.NumHashes * q.HashLen
		return service.CheckGroupRank(coordinator.GroupRank(q.GroupRank))
	}
	if err := h.session.checkHashes(q); err != nil {
		return err
	}
	var n int
	r.numTokens, n, err = r.pool.remote.Needed(q.NumTokens, q.Unaligned, q.NumHashes)
	r.neededBytes = n * q.HashLen
	return err
}

// overLimit returns errInFlight if the connection may have no further unanswered request.
func (h *remoteHandler) overLimit() error {
	limits := h.session.server.limits.Load()
	switch {
	case int(h.session.inFlight.Load()) >= limits.MaxInFlight:
		return fmt.Errorf("%w: %d", errInFlight, limits.MaxInFlight)
	case h.heldBytes > limits.MaxUnsent:
		return fmt.Errorf("%w: %d bytes of replies", errInFlight, h.heldBytes)
	}
	return nil
}

// addHashes implements requestHandler.
func (h *remoteHandler) addHashes(_ *netproto.Request, hashes []byte) (consumed int, wanted bool) {
	return len(hashes), h.current.addHashes(hashes)
}

// end implements requestHandler.
func (h *remoteHandler) end(q *netproto.Request) (done bool) {
	done, err := h.buildMasks(q)
	if !done {
		return false
	}
	defer releaseMasks(&h.masks)
	r := h.endCurrent(q, err)
	r.envelope, r.began = bytes.Clone(q.Envelope), h.session.began
	if !h.enqueueReply(r) {
		r.release()
		return true
	}
	h.serve(r, q)
	return true
}

// endCurrent returns the request that has ended, with the error that refuses it, if there is one.
// err is that of buildMasks.
func (h *remoteHandler) endCurrent(q *netproto.Request, err error) *remoteRequest {
	r := h.current
	h.current = nil
	if r == nil {
		r = h.newRequest(q)
		r.err = err
	}
	if r.err == nil {
		r.err = h.session.checkPool(q.Tag)
	}
	if r.err == nil && r.tag == netproto.TagResetRank {
		r.err = lookup.ErrResetRank
	}
	if q.Problem != nil {
		r.err, r.refused = q.Problem, false
	}
	limit := h.overLimit()
	if limit != nil {
		r.err = limit
	}
	r.err = h.session.refuseSetup(q.Tag, r.err)
	if limit != nil { // it overrides other errors: see enqueueReply
		r.err, r.refused = limit, true
	}
	return r
}

// serve finishes a request that needs no worker, and enqueues any other.
func (h *remoteHandler) serve(r *remoteRequest, q *netproto.Request) {
	switch {
	case r.err != nil || r.skipped:
		h.finish(r)
	case q.Tag == netproto.TagPing:
		r.payload = bytes.Clone(h.session.server.pong(q))
		h.finish(r)
	case q.Tag == netproto.TagPool, q.Tag == netproto.TagAuth:
		r.payload, r.err = h.session.answerSetup(q)
		h.finish(r)
	case q.Tag.IsMask():
		r.payload = netproto.AppendFrame(nil, h.masks.frame, false)
		h.finish(r)
	case r.isLookup() && r.hashes == nil:
		r.pool.remote.CountLookup(0, 0, 0)
		h.finish(r)
	default:
		r.endedBytes = r.held()
		h.endedBytes += r.endedBytes
		h.enqueue(r)
	}
}

// enqueue dispatches a request, or keeps it pending until those before it have completed. A
// read is pending for at most the backend's timeout.
func (h *remoteHandler) enqueue(r *remoteRequest) {
	h.pending = append(h.pending, r)
	h.dispatch()
	if r.isRead() && r.deadline.IsZero() {
		timeout := h.session.server.backend.Config().Timeout
		r.deadline = time.Now().Add(timeout)
		time.AfterFunc(timeout, h.wake)
	}
}

// dispatch starts the pending requests that need not wait any longer.
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
	if r.err = r.checkAuthorized(); r.err != nil {
		r.release()
		h.finish(r)
		return
	}
	if r.tag == netproto.TagStat { // it needs no worker, only its position in the order
		h.finish(r)
		return
	}
	cfg, pools := h.session.server.backend.Config(), h.session.server.workers
	timeout, active, pool, queue := cfg.Timeout, &h.activeReads, pools.reads, &h.readQueue
	if r.isWrite() {
		timeout, active, pool, queue = cfg.WriteTimeout, &h.activeWrites, pools.writes, &h.writeQueue
	}
	if r.deadline.IsZero() { // it was not pending
		r.deadline = time.Now().Add(timeout)
	}
	if !pool.submit(queue, r) {
		r.reject(fmt.Errorf("%w: %d", errBusy, cfg.Queue))
		r.release()
		h.finish(r)
		return
	}
	*active++
}

// complete returns a request to the event loop. A worker calls it.
func (h *remoteHandler) complete(r *remoteRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.completed = append(h.completed, r)
	if len(h.completed) == 1 {
		h.wakeEventLoop() // mu is held, so close, and gnet's release of the connection, come later
	}
}

// wake makes the event loop call handleWake, unless the connection is closed.
func (h *remoteHandler) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wakeEventLoop()
	}
}

// handleWake implements requestHandler.
func (h *remoteHandler) handleWake() {
	h.waking = true
	defer func() { h.waking, h.sharedStats = false, nil }()
	completed := h.takeCompleted()
	if len(completed) > 0 {
		h.session.lastActive.Store(monotime.Now()) // IdleTimeout begins now
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

// expirePending answers the pending reads whose deadline has passed. They waited behind a
// slow write.
func (h *remoteHandler) expirePending() {
	now := time.Now()
	var expired []*remoteRequest
	h.pending = slices.DeleteFunc(h.pending, func(r *remoteRequest) bool {
		is := r.isRead() && !r.deadline.IsZero() && !r.deadline.After(now)
		if is {
			expired = append(expired, r)
		}
		return is
	})
	for _, r := range expired {
		if r.release(); h.session.sendErr == nil {
			r.expire()
			h.finish(r)
		}
	}
}

// releaseRequest implements requestHandler.
func (h *remoteHandler) releaseRequest() {
	if h.current != nil {
		h.current.release()
		h.current = nil
	}
	releaseMasks(&h.masks)
}

// requestBytes is about what an unanswered request takes, beside its envelope and hashes.
const requestBytes = 512

// held implements requestHandler.
func (h *remoteHandler) held() int {
	n := int(h.session.inFlight.Load())*requestBytes + h.envelopeBytes + h.heldBytes + h.endedBytes + h.current.held()
	if h.masks != nil {
		n += h.masks.held()
	}
	return n
}

// close implements requestHandler. Dispatched writes run to their end. Dispatched reads are
// canceled, unless lookups of other connections share their answer.
func (h *remoteHandler) close() {
	h.mu.Lock()
	h.closed, h.completed = true, nil
	h.mu.Unlock()
	h.cancelConn()
	h.releaseRequest()
	for _, r := range h.pending {
		r.release()
	}
	h.pending = nil
	clear(h.last)
	h.session.server.inFlight.Add(-h.session.inFlight.Swap(0))
}
