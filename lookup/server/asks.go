package server

import (
	"errors"
	"net"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
)

// What becomes of each lookup is recorded for the account of its pool: see package tokens. An event loop reads all
// hashes of a lookup for it, also those that cannot change the answer: the last one tells requests apart. The ask stays
// with the loop until the reply is written, also while a worker has the job.

// begin begins to record the lookup that has begun. Of other requests, and of those that are refused for what they say,
// nothing is recorded.
func (as *asks) begin(q *netproto.Request) {
	s := as.session
	err := s.inline.err
	if j := s.jobs.current; j != nil {
		err = j.err
	}
	if op := &operations[q.Tag]; s.pool == nil || !op.lookup || op.inline != overMemory || err != nil && !errors.Is(err, errBusy) {
		return
	}
	if err != nil && s.pool.checkHashes(q, s.conn.limits.Load()) != nil { // busy comes before what the request says
		return
	}
	if as.asker == "" {
		as.asker = peerHost(s.conn.peer)
	}
	as.current = s.pool.account.NewAsk(as.asker, tokens.Prompt{
		NumTokens: int64(min(q.NumTokens, maxTokens)), Start: int64(q.Start), NumHashes: q.NumHashes,
	})
}

// maxTokens is more than a prompt has.
const maxTokens = 1 << 40

// peerHost returns the host of a peer's address.
func peerHost(peer net.Addr) string {
	switch a := peer.(type) {
	case *net.TCPAddr:
		return a.IP.String()
	case *net.UnixAddr:
		return "unix"
	}
	return "unknown"
}

// drop forgets the lookup that is being received.
func (as *asks) drop() {
	as.current.Drop()
	as.current = nil
}

// detach returns the ask of the request that has ended, nil if there is none.
func (as *asks) detach() *tokens.Ask {
	a := as.current
	as.current = nil
	return a
}

// attachTo gives a job the ask of its request.
func (as *asks) attachTo(j *job) {
	if j.lookup.ask = as.detach(); j.lookup.ask != nil {
		j.lookup.askIndex = len(as.jobs)
		as.jobs = append(as.jobs, j)
	}
}

// answerJob records a job whose reply is being written.
func (as *asks) answerJob(j *job) {
	if j.lookup.ask == nil {
		return
	}
	asking, last := as.jobs, len(as.jobs)-1
	asking[j.lookup.askIndex] = asking[last]
	asking[j.lookup.askIndex].lookup.askIndex, asking[last] = j.lookup.askIndex, nil
	as.jobs = asking[:last]
	as.answer(j.lookup.ask, j.lookup.answer, j.lookup.missing, j.err)
	j.lookup.ask = nil
}

// answer sets what a lookup has found, whose reply is being written.
func (as *asks) answer(a *tokens.Ask, answer lookup.Answer, missing tokens.Missing, err error) {
	s := as.session
	if a == nil {
		return
	}
	if e := answer.Ending; err == nil && !e.Failed && !s.conn.isHalfClosed() {
		a.Fill(answer.Hit.Tokens, e)
		a.Missing = missing
	}
	s.turn.asks = append(s.turn.asks, a)
}

// sent implements protocol: it records the requests whose replies were written, or could not be.
func (s *session) sent(written bool) {
	for i, a := range s.turn.asks {
		a.Answered = a.Answered && written
		s.conn.loop.recorder.Record(a, s.conn.times.lastActive.Load())
		s.turn.asks[i] = nil
	}
	s.turn.asks = s.turn.asks[:0]
}

// record records a change, or a lookup that gets no answer. nil is allowed.
func (as *asks) record(a *tokens.Ask) {
	s := as.session
	if a != nil {
		s.conn.loop.recorder.Record(a, monotime.Now())
	}
}

// beginChange begins to record keys that are stored or evicted inline.
func (as *asks) beginChange(q *netproto.Request) {
	s := as.session
	as.current = s.pool.account.NewChange(s.inline.change.Place(), q.NumHashes, q.Tag == netproto.TagEvict)
}

// endInline records what was answered inline.
func (as *asks) endInline(tag netproto.Tag, answer lookup.Answer, err error) {
	s := as.session
	switch a := as.detach(); {
	case operations[tag].lookup:
		as.answer(a, answer, tokens.Missing{}, err)
	case a != nil && (err == nil || s.inline.change.Changed() > 0):
		s.turn.asks = append(s.turn.asks, a) // in order with lookups
	default:
		a.Drop()
	}
}

// sampleMissing keeps some blocks that a lookup over a store lacked, for a look whether they are saved. A worker calls
// it.
func (j *job) sampleMissing() {
	e := &j.lookup.answer.Ending
	if j.pool.account == nil || j.service.Backend() == nil || e.Failed {
		return
	}
	found := e.Found
	if e.Group >= 0 {
		found = int(max(j.lookup.answer.Hit.Tokens, j.lookup.start) / int64(j.pool.hashBlock))
	}
	groups, keys := j.service.SampleMissing(j.lookup.numTokens, j.hashes(), found)
	j.lookup.missing = tokens.Missing{Groups: groups, Hashes: coordinator.NewHashes(keys, j.q.HashLen)}
}

// recordReset records that a worker has reset the pool.
func (j *job) recordReset(err error) {
	if err != nil && !errors.Is(err, api.ErrPartlyDone) {
		return
	}
	j.session.asks.record(j.pool.account.NewEmptied(true))
	if s := j.session.shared; s.backend != nil { // which may have removed what others have there, too
		for _, p := range s.pools.list() {
			if p != j.pool {
				j.session.asks.record(p.account.NewEmptied(false))
			}
		}
	}
}

// recordKeys records the keys of a job that were stored or evicted.
func (j *job) recordKeys(at coordinator.GroupRank, removed bool) {
	if place, err := j.service.Place(at); err == nil {
		j.recordPlace(place, j.hashes(), removed)
	}
}

// recordPlace records keys that a worker has stored or evicted at a place. What is stored over a store is not recorded:
// engines store there themselves.
func (j *job) recordPlace(place int, keys coordinator.Hashes, removed bool) {
	if j.service.Backend() != nil && !removed {
		return
	}
	a := j.pool.account.NewChange(place, keys.Len(), removed)
	if a == nil {
		return
	}
	addAll(a, keys)
	j.session.conn.loop.recorder.Record(a, monotime.Now())
}

// addAll adds hashes to an ask.
func addAll(a *tokens.Ask, hashes coordinator.Hashes) {
	for i := range hashes.Len() {
		a.AddHashes(hashes.At(i), hashes.HashLen())
	}
}

// isKnown reports whether a peer with a credential, nil for none, is told of single prompts, and of others: it is of
// this machine, or has one.
func isKnown(peer net.Addr, c *access.Credential) bool {
	switch peer := peer.(type) {
	case *net.TCPAddr:
		return c != nil || peer.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return c != nil
}

// missing stands for the place of lost tokens where it is not told.
const missing = "missing"

// explainTokens returns where the tokens of an explained prompt would be counted now. Peers that the server does not
// know are told neither the place of lost tokens nor exact times.
func (j *job) explainTokens(e *api.Explanation) *api.LostTokens {
	hashes := j.hashes()
	a := j.pool.account.NewAsk("", tokens.Prompt{NumTokens: j.lookup.numTokens, Start: j.lookup.start, NumHashes: j.q.NumHashes})
	if a == nil {
		return nil
	}
	defer a.Drop()
	addAll(a, hashes)
	a.Fill(e.HitTokens, e.Ending)
	told := j.session.shared.accounts.Explain(a)
	if !isKnown(j.session.conn.peer, j.credential) {
		lost := int64(0)
		for p := range tokens.NumPlaces {
			if p.IsLost() {
				lost += told.Tokens[p.String()]
				delete(told.Tokens, p.String())
			}
		}
		if told.Place != "" {
			told.Tokens[missing], told.Place = lost, missing
		}
		const exact = 10 * time.Minute
		for _, at := range []*time.Time{&told.AskedAt, &told.WholeAt, &told.RemembersSince} {
			*at = at.Truncate(exact)
		}
	}
	return &told
}
