package server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// flight is one request over a remote backend, from its blob's first byte to its
// reply. The event loop owns it, but from submit to land a worker does.
type flight struct {
	session  *session
	tag      netproto.Tag
	envelope []byte  // a copy, from the end of the request on
	next     *flight // the following one with an equal envelope
	behind   bool    // of another one with an equal envelope

	numTokens int64
	place     lookup.Place
	hashLen   int
	numHashes int
	began     int64           // when the request's first byte came, by monotime
	need      int             // bytes of hashes that can change the answer
	hashes    *bufpool.Buffer // those that have arrived, nil if none are needed
	deadline  time.Time

	landed  bool
	hit     uint32
	payload []byte // frames behind 01, encoded
	err     error  // why it is answered 00
	closed  bool   // the backend is not to be asked: the lookup fails open
	refused bool   // for ErrInFlight
	repeat  int    // as many more of such refusals follow this one
}

// changes tells whether the request changes what is stored, so that those before
// and behind it must not overtake it.
func (f *flight) changes() bool {
	return f.tag == netproto.TagStore || f.tag == netproto.TagEvict || f.tag == netproto.TagReset
}

// asks tells whether the request waits for an answer of the backend.
func (f *flight) asks() bool { return f.tag == netproto.TagLookup || f.tag == netproto.TagExplain }

// add copies the next hashes. It returns false when no more are needed.
func (f *flight) add(hashes []byte) bool {
	server := f.session.server
	if f.hashes == nil {
		f.hashes = bufpool.Get()
	}
	hashes = hashes[:min(len(hashes), f.need-len(f.hashes.B))]
	if !server.remote.Reserve(len(hashes)) {
		f.reject(fmt.Errorf("%w: their hashes fill %d bytes", ErrBusy, server.remote.Config().MaxBytes))
		f.release()
		return false
	}
	f.hashes.B = append(f.hashes.B, hashes...)
	server.copied.Add(int64(len(hashes)))
	return len(f.hashes.B) < f.need
}

// reject settles a request that the backend is not asked for: a lookup fails open.
func (f *flight) reject(err error) {
	f.session.server.remote.CountRejected()
	if f.tag == netproto.TagLookup {
		f.closed = true
		f.session.server.remote.Count(f.numTokens, f.need/max(f.hashLen, 1), 0)
		return
	}
	f.err = err
}

// late settles a request whose time was up before the backend could be asked.
func (f *flight) late() {
	remote := f.session.server.remote
	remote.CountTimeout()
	if f.tag == netproto.TagLookup {
		remote.Count(f.numTokens, f.need/max(f.hashLen, 1), 0)
		return
	}
	f.err = context.DeadlineExceeded
}

// release gives the hashes back.
func (f *flight) release() {
	if f.hashes != nil {
		f.session.server.remote.Free(len(f.hashes.B))
		f.hashes.Release()
		f.hashes = nil
	}
}

// fly asks the backend and lands. It runs on a worker.
func (f *flight) fly(ctx context.Context) {
	lost := f.session.flights.lost
	if f.changes() || lost.Err() == nil { // nobody waits for a lost connection's lookups
		ctx, cancel := context.WithDeadline(ctx, f.deadline)
		stop := func() bool { return true }
		if !f.changes() {
			stop = context.AfterFunc(lost, cancel)
		}
		f.err = f.ask(ctx)
		stop()
		cancel()
	}
	f.release()
	f.session.flights.land(f)
}

func (f *flight) ask(ctx context.Context) (err error) {
	remote := f.session.server.remote
	var hashes netproto.Hashes
	if f.hashes != nil {
		hashes = netproto.NewHashes(f.hashes.B, f.hashLen)
	}
	switch f.tag {
	case netproto.TagLookup:
		f.hit, err = remote.Lookup(ctx, f.numTokens, f.numHashes, hashes)
		return err
	case netproto.TagExplain:
		e, err := remote.Explain(ctx, f.numTokens, hashes)
		if err != nil {
			return err
		}
		f.payload, err = encodeJSON(e)
		return err
	case netproto.TagStore:
		return remote.Store(ctx, f.place, hashes)
	case netproto.TagEvict:
		return remote.Evict(ctx, f.place, hashes)
	}
	return remote.Reset(ctx)
}

// encodeJSON returns a document as a reply's last frame.
func encodeJSON(v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the reply: %w", err)
	}
	return netproto.AppendFrame(nil, payload, false), nil
}
