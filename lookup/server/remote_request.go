package server

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// remoteRequest is one request over a backend, from its first byte to its reply. It
// belongs to the event loop of its connection, and to a worker from workerPool.submit
// to remoteHandler.complete.
type remoteRequest struct {
	handler  *remoteHandler
	sent     netproto.Tag   // by the peer
	tag      netproto.Tag   // as which it is served
	envelope []byte         // a copy, set by remoteHandler.end
	next     *remoteRequest // the next one with an equal envelope, nil if none
	behind   bool           // an earlier one with an equal envelope has no reply yet

	// A pool or auth request behind this one changes those of the connection, not these.
	settings   *Settings          // of the listener, when it arrived
	credential *access.Credential // nil for an anonymous peer
	pool       *pool              // that it is about, nil if the connection had none

	numTokens   int64
	groupRank   coordinator.GroupRank
	hashLen     int
	numHashes   int
	began       int64           // when the first byte arrived, in monotime
	neededBytes int             // bytes of hashes that can change the answer; no more are copied
	hashes      *bufpool.Buffer // a copy of those received, nil if there are none
	deadline    time.Time       // zero until it is dispatched or pending

	prompt     *lookup.PromptWriter // of a store of a prompt, otherwise nil
	endedBytes int                  // those of it that remoteHandler.endedBytes counts

	answered bool // hit, payload and err are final
	hit      api.Hit
	payload  []byte // the frames after 01, encoded; of a plan its frame of masks
	err      error  // why it is answered 00, nil if it is not
	skipped  bool   // a lookup or a plan that is answered 0 without a call of the backend
	refused  bool   // err is errInFlight
	repeat   int    // how many refused requests after this one get the same reply
}

// isWrite reports whether the request changes what is stored. No other request may overtake
// it or be overtaken by it.
func (r *remoteRequest) isWrite() bool {
	switch r.tag {
	case netproto.TagStore, netproto.TagEvict, netproto.TagReset, netproto.TagStorePrompt:
		return true
	}
	return false
}

// isRead reports whether the request calls the backend and changes nothing.
func (r *remoteRequest) isRead() bool {
	return r.isLookup() || r.tag == netproto.TagExplain
}

// isLookup reports whether the request is a lookup or a plan: a hit of 0 is an answer to it.
func (r *remoteRequest) isLookup() bool {
	return r.tag == netproto.TagLookup || r.tag == netproto.TagPlan
}

// isSmall reports whether the request may use the workers that larger ones do not use. A reset
// visits the whole pool.
func (r *remoteRequest) isSmall() bool {
	bytes := r.neededBytes
	if r.prompt != nil {
		bytes *= r.prompt.NumPlaces() // each is a call
	}
	return r.tag != netproto.TagReset && r.handler.session.server.backend.IsSmall(bytes)
}

// addHashes copies the next hashes. It returns false if no more are needed.
func (r *remoteRequest) addHashes(hashes []byte) bool {
	server := r.handler.session.server
	if r.hashes == nil {
		r.hashes = bufpool.GetFor(r.neededBytes)
	}
	hashes = hashes[:min(len(hashes), r.neededBytes-len(r.hashes.B))]
	if !server.backend.Reserve(len(hashes), r.neededBytes) {
		r.reject(fmt.Errorf("%w: there is no memory for more hashes, see limits.max_memory", errBusy))
		r.release()
		return false
	}
	if len(hashes) > cap(r.hashes.B)-len(r.hashes.B) {
		// append grows a large array by a quarter, and so copies the hashes of a long prompt
		// six times. Doubling copies them less often.
		r.hashes.Grow(min(r.neededBytes-len(r.hashes.B), max(len(hashes), len(r.hashes.B))))
	}
	r.hashes.B = append(r.hashes.B, hashes...)
	r.handler.session.metrics.copied.Add(int64(len(hashes)))
	return len(r.hashes.B) < r.neededBytes
}

// reject ends a request without a call of the backend: one that has a hit with 0, others with err.
func (r *remoteRequest) reject(err error) {
	r.pool.remote.CountRejected()
	if r.isLookup() {
		r.skipped = true
		r.countMiss()
		return
	}
	r.err = err
}

// expire ends a request whose deadline has passed before the backend was called.
func (r *remoteRequest) expire() {
	r.pool.remote.CountTimeout()
	if r.isLookup() {
		r.countMiss()
		return
	}
	r.err = context.DeadlineExceeded
}

// countMiss counts a lookup or a plan that is answered 0 without a call of the backend.
func (r *remoteRequest) countMiss() {
	r.pool.remote.CountLookup(r.numTokens, r.neededBytes/max(r.hashLen, 1), 0)
}

// release releases the copy of the hashes.
func (r *remoteRequest) release() {
	if r.hashes != nil {
		r.handler.session.server.backend.Free(len(r.hashes.B), r.neededBytes)
		r.hashes.Release()
		r.hashes = nil
	}
}

// run calls the backend and completes the request. A worker calls it. ctx ends when the
// server stops.
func (r *remoteRequest) run(ctx context.Context) {
	conn := r.handler.connCtx
	if r.isWrite() || conn.Err() == nil { // reads of a closed connection are skipped
		ctx, cancel := context.WithDeadline(ctx, r.deadline)
		stop := func() bool { return true }
		if !r.isWrite() {
			stop = context.AfterFunc(conn, cancel)
		}
		r.err = r.callBackend(ctx)
		stop()
		cancel()
	}
	r.release()
	r.handler.complete(r)
}

// callBackend makes the request's calls of the backend and sets its hit or payload.
func (r *remoteRequest) callBackend(ctx context.Context) (err error) {
	remote := r.pool.remote
	var hashes coordinator.Hashes
	if r.hashes != nil {
		hashes = coordinator.NewHashes(r.hashes.B, r.hashLen)
	}
	switch r.tag {
	case netproto.TagLookup:
		r.hit, err = remote.Lookup(ctx, r.numTokens, r.numHashes, hashes)
		return err
	case netproto.TagPlan:
		return r.plan(ctx, hashes)
	case netproto.TagExplain:
		e, err := remote.Explain(ctx, r.numTokens, hashes)
		if err != nil {
			return err
		}
		e.Pool = r.pool.name
		r.payload, err = encodeJSON(e)
		return err
	case netproto.TagStore:
		return remote.Store(ctx, r.groupRank, hashes)
	case netproto.TagStorePrompt:
		return r.storePrompt(ctx, hashes)
	case netproto.TagEvict:
		return remote.Evict(ctx, r.groupRank, hashes)
	case netproto.TagReset:
		return remote.Reset(ctx)
	}
	return fmt.Errorf("server: no call of a store for %v", r.tag)
}
