package server

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// memoryHandler serves the requests of one session over the memory index. Hashes are looked
// up as they arrive, and a request is answered when it ends.
type memoryHandler struct {
	session *session

	query  *lookup.Query  // the lookup being received, nil between lookups
	change *lookup.Change // the store or evict being received, nil before the first
	err    error          // why the request being received cannot be served
}

// errAnchorsTurnLimit is the error of a request by anchors after anchorsTurnLimit.
var errAnchorsTurnLimit = fmt.Errorf("too many requests by anchors at a time: %w", lookup.ErrByHashes)

// anchorsTurnLimit bounds the time of a turn in which a second request by anchors is
// served. Such a request of a hundred bytes may follow a chain of a hundred thousand
// pieces, which takes milliseconds, and a turn may have a thousand of them. Other lookups
// take time in proportion to their bytes.
const anchorsTurnLimit = 5 * time.Millisecond

// begin implements requestHandler.
func (h *memoryHandler) begin(q *netproto.Request) (wanted bool) {
	if h.err = h.session.checkPool(q.Tag); h.err != nil {
		return false
	}
	switch q.Tag {
	case netproto.TagLookup, netproto.TagExplain:
		wanted, h.err = h.beginLookup(q)
	case netproto.TagAnchors:
		wanted, h.err = h.beginAnchors(q)
	default:
		h.err = h.beginChange(q)
		wanted = h.err == nil
	}
	return wanted
}

// beginChange begins a store or an evict.
func (h *memoryHandler) beginChange(q *netproto.Request) error {
	service := h.session.pool.service
	if h.change == nil {
		h.change = new(lookup.Change)
	}
	if q.Tag == netproto.TagStore {
		return service.BeginStore(h.change, q.GroupRank, q.FirstChunk)
	}
	return service.BeginEvict(h.change, q.GroupRank)
}

// beginLookup begins a lookup or an explain.
func (h *memoryHandler) beginLookup(q *netproto.Request) (wanted bool, err error) {
	if err := h.session.checkHashes(q); err != nil {
		return false, err
	}
	h.query = h.session.pool.service.NewQuery()
	begin := h.query.Begin
	if q.Tag == netproto.TagExplain {
		begin = h.query.BeginExplain
	}
	return begin(q.NumTokens, q.Unaligned, q.HashLen, q.NumHashes)
}

// beginAnchors begins a lookup by anchors, or a request for their parameters.
func (h *memoryHandler) beginAnchors(q *netproto.Request) (wanted bool, err error) {
	server := h.session.server
	if err := h.session.checkHashes(q); err != nil {
		return false, err
	}
	if h.session.anchorRequests > 0 && q.Anchors.NumHashes > 0 && time.Since(h.session.turnStart) > server.anchorsTurnLimit {
		return false, errAnchorsTurnLimit
	}
	h.session.anchorRequests++
	h.query = h.session.pool.service.NewQuery()
	return h.query.BeginAnchors(q)
}

// addHashes implements requestHandler.
func (h *memoryHandler) addHashes(q *netproto.Request, hashes []byte) bool {
	switch q.Tag {
	case netproto.TagLookup, netproto.TagExplain:
		return h.query.Add(hashes)
	case netproto.TagAnchors:
		return h.query.AddAnchors(hashes)
	case netproto.TagStore, netproto.TagEvict:
		h.err = h.change.Add(hashes, q.HashLen)
	}
	return h.err == nil
}

// end implements requestHandler.
func (h *memoryHandler) end(q *netproto.Request) {
	err := q.Problem
	if err != nil && q.Tag == netproto.TagPool {
		h.session.leavePool()
	}
	if err == nil {
		err = h.err
	}
	if err == nil {
		err = h.session.checkPool(q.Tag)
	}
	if err == nil {
		err = h.reply(q)
	}
	h.releaseRequest()
	switch {
	case err == nil:
	case q.Tag == netproto.TagLookup:
		h.session.appendFailedLookup(h.session.pool, q.Envelope, err)
	default:
		h.session.appendFailed(q.Envelope, err)
	}
	h.session.flush(flushAt)
}

// reply serves a request without problems and appends its reply.
func (h *memoryHandler) reply(q *netproto.Request) error {
	s := h.session
	switch q.Tag {
	case netproto.TagLookup:
		hit, err := h.query.Finish()
		if err != nil {
			return err
		}
		s.appendHit(q.Envelope, hit)
		s.countLookup(q.NumHashes)
		return nil
	case netproto.TagExplain:
		e, err := h.query.Explanation()
		if err != nil {
			return err
		}
		e.Pool = s.pool.name
		return s.replyJSON(q, e)
	case netproto.TagAnchors:
		return h.replyAnchors(q)
	case netproto.TagStore, netproto.TagEvict:
		h.change.End(q.KeyBefore)
	case netproto.TagReset:
		if err := s.pool.service.Reset(context.Background()); err != nil {
			return err
		}
	case netproto.TagPing:
		s.out.B = netproto.AppendDone(s.out.B, q.Envelope, q.Echo)
		return nil
	case netproto.TagStat:
		return s.replyJSON(q, s.server.statOf(s.pool))
	case netproto.TagPool:
		payload, err := s.changePool(q.Description)
		if err != nil {
			return err
		}
		s.out.B = netproto.AppendDone(s.out.B, q.Envelope, payload)
		return nil
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, nil)
	return nil
}

// replyAnchors appends the reply to a request by anchors.
func (h *memoryHandler) replyAnchors(q *netproto.Request) error {
	s := h.session
	if q.Anchors.NumHashes == 0 {
		s.appendAnchorsParams(q.Envelope)
		return nil
	}
	a, err := h.query.FinishAnchors()
	switch {
	case err != nil:
		return err
	case !a.Determined:
		s.server.undetermined.Add(1)
		s.out.B = netproto.AppendAnchorsReply(s.out.B, q.Envelope, netproto.AnchorsMore, a.Proven, a.Claimed, a.End)
		return nil
	}
	s.server.anchored.Add(1)
	s.appendAnchorsHit(q.Envelope, a.Hit)
	s.countLookup(int(q.Anchors.NumHashes))
	return nil
}

// replyJSON appends 01 and v in JSON.
func (s *session) replyJSON(q *netproto.Request, v any) error {
	payload, err := encodeJSON(v)
	if err != nil {
		return err
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, payload)
	return nil
}

// handleWake implements requestHandler. Every request was answered when it ended.
func (h *memoryHandler) handleWake() {}

// releaseRequest implements requestHandler.
func (h *memoryHandler) releaseRequest() {
	h.err = nil
	if h.query != nil {
		h.query.Release()
		h.query = nil
	}
}

// close implements requestHandler.
func (h *memoryHandler) close() { h.releaseRequest() }
