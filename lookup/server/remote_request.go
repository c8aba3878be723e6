package server

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// remoteRequest is one request over a backend, from its first byte to its reply. It
// belongs to the event loop of its connection, and to a worker from workerPool.submit
// to remoteHandler.complete.
type remoteRequest struct {
	handler  *remoteHandler
	tag      netproto.Tag
	envelope []byte         // a copy, set at the end of the request
	next     *remoteRequest // the following one with an equal envelope
	behind   bool           // another one with an equal envelope has no reply yet

	numTokens int64
	place     lookup.GroupRank
	hashLen   int
	numHashes int
	began     int64           // when the request's first byte came, by monotime
	need      int             // bytes of hashes that can change the answer
	hashes    *bufpool.Buffer // a copy of those received, nil if none are needed
	deadline  time.Time       // zero until it is dispatched, or waits for that

	answered bool // what follows is final
	hit      api.Hit
	payload  []byte // frames behind 01, encoded
	err      error  // why it is answered 00
	skipped  bool   // a lookup that is answered 0 without asking the backend
	refused  bool   // err is ErrInFlight
	repeat   int    // how many more such refusals follow this one
}

// isWrite tells whether the request changes what is stored, so that requests before and
// behind it must not overtake it.
func (r *remoteRequest) isWrite() bool {
	return r.tag == netproto.TagStore || r.tag == netproto.TagEvict || r.tag == netproto.TagReset
}

// isRead tells whether the request asks the backend and changes nothing.
func (r *remoteRequest) isRead() bool {
	return r.tag == netproto.TagLookup || r.tag == netproto.TagExplain
}

// add copies the next hashes. It returns false when no more are needed.
func (r *remoteRequest) add(hashes []byte) bool {
	server := r.handler.session.server
	if r.hashes == nil {
		r.hashes = bufpool.Get()
	}
	hashes = hashes[:min(len(hashes), r.need-len(r.hashes.B))]
	if !server.remote.Reserve(len(hashes)) {
		r.reject(fmt.Errorf("%w: their hashes fill %d bytes", ErrBusy, server.remote.Config().MaxBytes))
		r.release()
		return false
	}
	r.hashes.B = append(r.hashes.B, hashes...)
	server.copied.Add(int64(len(hashes)))
	return len(r.hashes.B) < r.need
}

// reject settles a request that the backend is not asked for: a lookup is answered 0.
func (r *remoteRequest) reject(err error) {
	r.handler.remote().CountRejected()
	if r.tag == netproto.TagLookup {
		r.skipped = true
		r.countMiss()
		return
	}
	r.err = err
}

// expire settles a request whose time was up before the backend could be asked.
func (r *remoteRequest) expire() {
	r.handler.remote().CountTimeout()
	if r.tag == netproto.TagLookup {
		r.countMiss()
		return
	}
	r.err = context.DeadlineExceeded
}

// countMiss counts a lookup that is answered 0 without asking the backend.
func (r *remoteRequest) countMiss() {
	r.handler.remote().CountLookup(r.numTokens, r.need/max(r.hashLen, 1), 0)
}

// release gives the copy of the hashes back.
func (r *remoteRequest) release() {
	if r.hashes != nil {
		r.handler.remote().Free(len(r.hashes.B))
		r.hashes.Release()
		r.hashes = nil
	}
}

// run asks the backend and completes the request. It is called by a worker.
func (r *remoteRequest) run(ctx context.Context) {
	conn := r.handler.connCtx
	if r.isWrite() || conn.Err() == nil { // nobody waits for reads of a closed connection
		ctx, cancel := context.WithDeadline(ctx, r.deadline)
		stop := func() bool { return true }
		if !r.isWrite() {
			stop = context.AfterFunc(conn, cancel)
		}
		r.err = r.ask(ctx)
		stop()
		cancel()
	}
	r.release()
	r.handler.complete(r)
}

// ask makes the calls of the backend.
func (r *remoteRequest) ask(ctx context.Context) (err error) {
	remote := r.handler.remote()
	var hashes netproto.Hashes
	if r.hashes != nil {
		hashes = netproto.NewHashes(r.hashes.B, r.hashLen)
	}
	switch r.tag {
	case netproto.TagLookup:
		r.hit, err = remote.Lookup(ctx, r.numTokens, r.numHashes, hashes)
		return err
	case netproto.TagExplain:
		e, err := remote.Explain(ctx, r.numTokens, hashes)
		if err != nil {
			return err
		}
		r.payload, err = encodeJSON(e)
		return err
	case netproto.TagStore:
		return remote.Store(ctx, r.place, hashes)
	case netproto.TagEvict:
		return remote.Evict(ctx, r.place, hashes)
	}
	return remote.Reset(ctx)
}
