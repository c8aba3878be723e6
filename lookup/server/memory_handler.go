package server

import (
	"context"

	"golang.org/x/sys/cpu"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// memoryHandler serves the requests of one session over the memory index. Hashes are looked
// up as they arrive, and a request is answered when it ends.
type memoryHandler struct {
	session *session

	query  *lookup.Query        // the lookup being received, nil between lookups
	change *lookup.Change       // the store or evict being received, nil before the first
	prompt *lookup.PromptWriter // the prompt being received, nil between prompts
	reset  *index.PlacesReset   // the reset_rank under way, nil if there is none
	masks  *maskFrame           // of the plan or the request for masks that is being answered, nil if none
	err    error                // why the request being received cannot be served

	_ cpu.CacheLinePad // the next one may be another event loop's
}

// begin implements requestHandler.
func (h *memoryHandler) begin(q *netproto.Request) (wanted bool) {
	if h.err = h.session.checkPool(q.Tag); h.err != nil {
		return false
	}
	switch q.Tag {
	case netproto.TagLookup, netproto.TagExplain, netproto.TagPlan:
		wanted, h.err = h.beginLookup(q)
	case netproto.TagStorePrompt:
		wanted, h.err = h.beginPrompt(q)
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
		return service.BeginStore(h.change, coordinator.GroupRank(q.GroupRank))
	}
	return service.BeginEvict(h.change, coordinator.GroupRank(q.GroupRank))
}

// beginLookup begins a lookup, an explain or a plan.
func (h *memoryHandler) beginLookup(q *netproto.Request) (wanted bool, err error) {
	if err := h.session.checkHashes(q); err != nil {
		return false, err
	}
	h.newQuery(h.session.pool.service)
	begin := h.query.Begin
	if q.Tag == netproto.TagExplain {
		begin = h.query.BeginExplain
	}
	return begin(q.NumTokens, q.Unaligned, q.HashLen, q.NumHashes)
}

// newQuery makes a query of a pool whose work is that of the session's turns.
func (h *memoryHandler) newQuery(service *lookup.Service) {
	h.query = service.NewQuery()
	h.query.LimitWork(&h.session.workLeft)
}

// addHashes implements requestHandler.
func (h *memoryHandler) addHashes(q *netproto.Request, hashes []byte) (consumed int, wanted bool) {
	switch q.Tag {
	case netproto.TagLookup, netproto.TagExplain, netproto.TagPlan:
		return len(hashes), h.query.Add(hashes)
	case netproto.TagStore, netproto.TagEvict:
		consumed = h.changeSome(q, hashes)
	case netproto.TagStorePrompt:
		consumed = h.addPrompt(q, hashes)
	}
	return consumed, h.err == nil
}

const (
	// changePiece is how many keys are stored or evicted before the work is checked again.
	changePiece = 128
	// storeWork is the least work of storing a key, and evictWork that of evicting one.
	storeWork, evictWork = 60, 180
)

// changeSome stores or evicts the next keys, within the work that is left. It returns how many
// bytes of them it has consumed.
func (h *memoryHandler) changeSome(q *netproto.Request, keys []byte) (consumed int) {
	hashLen, perKey := q.HashLen, storeWork
	if q.Tag == netproto.TagEvict {
		perKey = evictWork
	}
	for s := h.session; consumed < len(keys) && s.workLeft > 0 && h.err == nil; {
		n := min(len(keys)-consumed, changePiece*hashLen)
		worked := h.change.Work()
		h.err = h.change.Add(keys[consumed:consumed+n], hashLen)
		s.workLeft -= max(h.change.Work()-worked, n/hashLen*perKey)
		consumed += n
	}
	return consumed
}

// end implements requestHandler.
func (h *memoryHandler) end(q *netproto.Request) (done bool) {
	err := h.session.refuseSetup(q.Tag, q.Problem)
	if err == nil {
		err = h.err
	}
	if err == nil {
		err = h.session.checkPool(q.Tag)
	}
	if err == nil {
		if done, err = h.reply(q); !done {
			return false
		}
	}
	h.releaseRequest()
	switch {
	case err == nil:
	case q.Tag == netproto.TagLookup:
		h.session.appendFailedLookup(h.session.pool, q.Envelope, err)
	default:
		h.session.appendFailed(q.Envelope, err)
	}
	h.session.countReply(q.Tag)
	h.session.flush(flushAt)
	return true
}

// reply serves a request without problems and appends its reply. It returns false if the turn
// has no work left.
func (h *memoryHandler) reply(q *netproto.Request) (done bool, err error) {
	s := h.session
	switch q.Tag {
	case netproto.TagLookup:
		return h.replyLookup(q)
	case netproto.TagPlan:
		return h.replyPlan(q)
	case netproto.TagLoadMask, netproto.TagStoreMask, netproto.TagLookupMask:
		return h.replyMasks(q)
	case netproto.TagExplain:
		e, done, err := h.query.ExplainSome()
		if err != nil || !done {
			return done, err
		}
		e.Pool = s.pool.name
		return true, s.replyJSON(q, e)
	case netproto.TagStorePrompt:
		return true, h.replyPrompt(q)
	case netproto.TagReset:
		if err := s.pool.service.Reset(context.Background()); err != nil {
			return true, err
		}
	case netproto.TagResetRank:
		if done, err := h.resetRank(coordinator.GroupRank(q.GroupRank)); err != nil || !done {
			return done, err
		}
	case netproto.TagPing:
		s.out.B = netproto.AppendDone(s.out.B, q.Envelope, s.server.pong(q))
		return true, nil
	case netproto.TagStat:
		s.publishReplies()
		return true, s.replyJSON(q, s.server.statFor(s.credential, s.pool))
	case netproto.TagPool, netproto.TagAuth:
		payload, err := s.answerSetup(q)
		if err != nil {
			return true, err
		}
		s.out.B = netproto.AppendDone(s.out.B, q.Envelope, payload)
		return true, nil
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, nil)
	return true, nil
}

// replyLookup appends the reply to a lookup.
func (h *memoryHandler) replyLookup(q *netproto.Request) (done bool, err error) {
	hit, done, err := h.query.FinishSome()
	if err != nil || !done {
		return done, err
	}
	h.session.appendHit(q.Envelope, hit)
	h.session.countLookup(q.NumHashes)
	return true, nil
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

// releaseRequest implements requestHandler. Keys that have arrived are stored, also those of a
// request that is not served.
func (h *memoryHandler) releaseRequest() {
	h.err = nil
	releaseMasks(&h.masks) // its tail boundaries are the query's
	h.releasePrompt()
	if h.reset != nil {
		h.reset.End()
		h.reset = nil
	}
	if h.query != nil {
		h.query.Release()
		h.query = nil
	}
}

// held implements requestHandler.
func (h *memoryHandler) held() (n int) {
	if h.query != nil {
		n = h.query.Held()
	}
	if h.prompt != nil {
		n += h.prompt.Held()
	}
	if h.masks != nil {
		n += h.masks.held()
	}
	return n
}

// close implements requestHandler.
func (h *memoryHandler) close() { h.releaseRequest() }
