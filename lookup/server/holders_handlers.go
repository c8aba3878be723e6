package server

import (
	"bytes"

	"github.com/hitline/hitline/netproto"
)

// beginHolders begins a holders request. With loadable a query of the model's pool goes beside that of the
// fleet.
func (h *memoryHandler) beginHolders(q *netproto.Request) (wanted bool, err error) {
	if h.holders, err = h.session.beginHolders(q); err != nil {
		return false, err
	}
	wanted = h.holders.wanted
	if h.holders.params.Loadable {
		h.newQuery(h.holders.model.Service)
		tokens, unaligned := h.holders.loadTokens(q.NumHashes)
		if h.loadWanted, err = h.query.Begin(tokens, unaligned, q.HashLen, q.NumHashes); err != nil {
			return false, err
		}
	}
	return wanted || h.loadWanted, nil
}

// addHolders adds the next hashes of a holders request.
func (h *memoryHandler) addHolders(hashes []byte) (wanted bool) {
	wanted = h.holders.add(hashes, &h.session.workLeft)
	h.loadWanted = h.loadWanted && h.query.Add(hashes)
	return wanted || h.loadWanted
}

// replyHolders appends the reply to a holders request.
func (h *memoryHandler) replyHolders(q *netproto.Request) (done bool, err error) {
	s, r := h.session, h.holders
	if err := s.checkHolders(r); err != nil { // it may have changed since the request began
		return true, err
	}
	if !r.encode(q.NumHashes, &s.workLeft) {
		return false, nil
	}
	var loadable *int64
	if r.params.Loadable {
		hit, done, err := h.query.FinishSome()
		if err != nil || !done {
			return done, err
		}
		loadable = &hit.Tokens
	}
	r.text = appendHoldersTail(r.text, r.leftOut, loadable)
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, netproto.AppendFrameHeader(nil, len(r.text), false))
	s.out.B = append(s.out.B, r.text...)
	return true, nil
}

// prepareHolders begins a holders request over a backend. With loadable it sets how many bytes of hashes the
// lookup in the store needs.
func (r *remoteRequest) prepareHolders(q *netproto.Request) (err error) {
	r.pool = nil // that of the connection does not matter
	if r.holders, err = r.handler.session.beginHolders(q); err != nil || !r.holders.params.Loadable {
		return err
	}
	model := r.holders.model
	r.loadable, r.pool = true, &pool{name: model.Pool, service: model.Service, remote: model.Service.Remote()}
	tokens, unaligned := r.holders.loadTokens(q.NumHashes)
	var n int
	r.numTokens, n, err = r.pool.remote.Needed(tokens, unaligned, q.NumHashes)
	r.neededBytes = n * q.HashLen
	return err
}

// addHolders adds the next hashes of a holders request. Those that the store is asked about are copied.
func (r *remoteRequest) addHolders(hashes []byte) (wanted bool) {
	wanted = r.holders.add(hashes, &r.handler.session.workLeft)
	if r.neededBytes > 0 && !r.skipped && r.addHashes(hashes) {
		wanted = true
	}
	return wanted
}

// buildHolders encodes the holders of a request that can be served. If it returns false there is more to do.
// No worker is needed, as the fleet is in memory.
func (h *remoteHandler) buildHolders(q *netproto.Request) (done bool) {
	r := h.current
	if r == nil || r.holders == nil || r.err != nil || q.Problem != nil || h.overLimit() != nil {
		return true
	}
	return r.holders.encode(q.NumHashes, &h.session.workLeft)
}

// endHolders takes the text of a holders request that has ended, and releases the rest. It returns an error if the
// peer may not ask this any more. Without an error the text lacks its end.
func (r *remoteRequest) endHolders() error {
	if r.holders == nil {
		return nil
	}
	defer releaseHolders(&r.holders)
	if r.err != nil {
		return nil
	}
	r.text, r.leftOut = bytes.Clone(r.holders.text), r.holders.leftOut
	return r.handler.session.checkHolders(r.holders)
}

// encodeHolders sets the payload of a holders request that was served. A store that was not asked, or did not
// answer in time, can load nothing.
func (r *remoteRequest) encodeHolders() {
	if r.text == nil || r.err != nil {
		return
	}
	var loadable *int64
	if r.loadable {
		loadable = &r.hit.Tokens
	}
	text := appendHoldersTail(r.text, r.leftOut, loadable)
	r.payload, r.text = netproto.AppendFrame(nil, text, false), nil
}
