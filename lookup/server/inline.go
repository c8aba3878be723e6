package server

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// inlineRequest is the lookup, store or evict that is served over the memory index as its hashes
// arrive, on the event loop. It has a value from Begin to the request's end.
type inlineRequest struct {
	active bool
	query  *lookup.Query // of a lookup, otherwise nil
	change lookup.Change // of a store or an evict
	err    error         // why the request cannot be served
}

// release releases what an unfinished request holds. Keys that have arrived are stored.
func (r *inlineRequest) release() {
	if r.query != nil {
		r.query.Release()
		r.query = nil
	}
	r.active, r.change, r.err = false, lookup.Change{}, nil
}

// refuse makes an unfinished lookup fail, which then holds nothing.
func (r *inlineRequest) refuse(err error) {
	if r.query != nil {
		r.query.Release()
		r.query, r.err = nil, err
	}
}

// held returns the bytes of memory that it holds.
func (r *inlineRequest) held() int {
	if r.query == nil {
		return 0
	}
	return r.query.Held()
}

// addHashes serves the next hashes. It returns false if no more are needed.
func (r *inlineRequest) addHashes(q *netproto.Request, hashes []byte) (wanted bool) {
	switch {
	case r.err != nil:
		return false
	case r.query != nil:
		return r.query.Add(hashes)
	}
	r.err = r.change.Add(hashes, q.HashLen)
	return r.err == nil
}

// beginInline begins a lookup, a store or an evict. It returns false if no hash is needed.
func (s *session) beginInline(q *netproto.Request) (wanted bool) {
	r := &s.inline
	r.active = true
	if r.err = s.pool.checkHashes(q, s.conn.limits.Load()); r.err != nil {
		return false
	}
	switch q.Tag {
	case netproto.TagLookup, netproto.TagLookupFrom:
		r.query = s.service.Memory().NewQuery()
		wanted, r.err = r.query.Begin(q.NumTokens, q.Unaligned, int64(q.Start), q.HashLen, q.NumHashes)
		return wanted
	case netproto.TagStore:
		r.err = s.service.Memory().BeginStore(&r.change, coordinator.GroupRank(q.GroupRank))
	default:
		r.err = s.service.Memory().BeginEvict(&r.change, coordinator.GroupRank(q.GroupRank))
	}
	if r.err == nil {
		s.asks.beginChange(q)
	}
	return r.err == nil
}

// endInline answers a request that has ended.
func (s *session) endInline(q *netproto.Request) {
	r := &s.inline
	err := r.err
	if problem := s.problemOf(q); problem != nil {
		err = problem
	}
	if err == nil && r.query != nil && r.query.IsLarge() {
		s.jobs.adopt(q)
		return
	}
	var answer lookup.Answer
	if err == nil {
		answer, err = s.replyInline(q)
	}
	if err != nil && r.active && r.query == nil && r.change.Changed() > 0 {
		err = fmt.Errorf("%w: %d keys: %w", api.ErrPartlyDone, r.change.Changed(), err)
	}
	if err != nil {
		s.appendRefusal(q.Tag, s.pool, q.Envelope, err)
	}
	s.conn.loop.metrics.countAnswer(q.Tag, s.conn.isHalfClosed())
	s.asks.endInline(q.Tag, answer, err)
	r.release()
}

// replyInline appends the reply to a request that can be served. It returns the answer of a lookup.
func (s *session) replyInline(q *netproto.Request) (answer lookup.Answer, err error) {
	switch q.Tag {
	case netproto.TagPing:
		s.turn.out = netproto.AppendDone(s.turn.out, q.Envelope, s.shared.pingReply(q, s.pool))
	case netproto.TagLookup, netproto.TagLookupFrom:
		query := s.inline.query
		if answer.Hit, err = query.Finish(); err != nil {
			return answer, err
		}
		if s.asks.current != nil {
			answer.Ending = query.Ending(answer.Hit)
		}
		s.turn.out = appendHit(s.turn.out, q.Envelope, answer.Hit)
		s.conn.loop.metrics.observeHashes(q.NumHashes)
		s.turn.countLookup(s.conn.began)
	default:
		s.turn.out = netproto.AppendDone(s.turn.out, q.Envelope, nil)
	}
	return answer, nil
}
