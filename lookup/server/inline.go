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

// beginInline begins a lookup, a store or an evict. It returns false if no hash is needed.
func (s *session) beginInline(q *netproto.Request) (wanted bool) {
	r := &s.inline
	r.active = true
	if r.err = s.checkHashes(q); r.err != nil {
		return false
	}
	switch q.Tag {
	case netproto.TagLookup, netproto.TagLookupFrom:
		r.query = s.service.NewQuery()
		wanted, r.err = r.query.Begin(q.NumTokens, q.Unaligned, int64(q.Start), q.HashLen, q.NumHashes)
		return wanted
	case netproto.TagStore:
		r.err = s.service.BeginStore(&r.change, coordinator.GroupRank(q.GroupRank))
	default:
		r.err = s.service.BeginEvict(&r.change, coordinator.GroupRank(q.GroupRank))
	}
	if r.err == nil {
		s.beginChange(q)
	}
	return r.err == nil
}

// checkHashes returns an error if there is no pool, if a lookup or a renew has more hashes than
// Limits.MaxHashes, if hashes have not the length of the pool's, or if no lookup begins as the
// request says.
func (s *session) checkHashes(q *netproto.Request) error {
	if s.pool == nil {
		return errNoPool
	}
	op, numHashes := &operations[q.Tag], int64(q.NumHashes)
	if op.from {
		numHashes += int64(q.Start) / int64(s.pool.hashBlock)
	}
	if limit := s.conn.limits.Load().MaxHashes; (op.lookup || q.Tag == netproto.TagRenew) && numHashes > int64(limit) {
		return &limitError{text: fmt.Sprintf("%d hashes, at most %d", numHashes, limit), limit: int64(limit)}
	}
	if want := s.pool.hashLen; want != 0 && q.NumHashes > 0 && q.HashLen != want {
		return fmt.Errorf("%w: hash_len %d, the pool has %d", errHashLen, q.HashLen, want)
	}
	if !op.from {
		return nil
	}
	return s.checkStart(q, numHashes)
}

// checkStart returns an error if no lookup begins as the request says. A lookup_from must not have
// more hashes, with those before its start, than its tokens.
func (s *session) checkStart(q *netproto.Request, numHashes int64) error {
	if err := s.service.Coordinator().CheckStart(int64(q.Start), int64(q.NumTokens)); err != nil {
		return err
	}
	if most := int64(q.NumTokens) / int64(s.pool.hashBlock); q.Tag == netproto.TagLookupFrom && numHashes > most {
		before := int64(q.Start) / int64(s.pool.hashBlock)
		err := fmt.Errorf("%w: %d tokens have %d from start_token %d on, and there are %d", errTooManyHashes, q.NumTokens, most-before, q.Start, q.NumHashes)
		if before > 0 {
			err = fmt.Errorf("%w: if they are the whole prompt's, leave out the first %d", err, before)
		}
		return err
	}
	return nil
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

// endInline answers a request that has ended.
func (s *session) endInline(q *netproto.Request) {
	r := &s.inline
	err := r.err
	if problem := s.problemOf(q); problem != nil {
		err = problem
	}
	if err == nil && r.query != nil && r.query.IsLarge() {
		s.finishAsJob(q)
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
	s.countAnswer(q.Tag)
	s.endInlineAsk(q.Tag, answer, err)
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

// appendHit appends the reply to a lookup.
func appendHit(dst, envelope []byte, hit api.Hit) []byte {
	return appendTailBoundaries(netproto.AppendTailHit(dst, envelope, uint32(hit.Tokens), len(hit.TailBoundaries)), hit)
}

// appendTailBoundaries appends those of a hit whose tokens are in dst.
func appendTailBoundaries(dst []byte, hit api.Hit) []byte {
	for _, b := range hit.TailBoundaries {
		dst = netproto.AppendTailBoundary(dst, uint32(b.Group), uint32(b.Tokens))
	}
	return dst
}
