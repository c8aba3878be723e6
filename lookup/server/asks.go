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

// What becomes of each lookup is recorded for the account of its pool: see package tokens. An event loop reads all hashes of a
// lookup for it, also those that cannot change the answer: the last one tells requests apart. The ask stays with the loop
// until the reply is written, also while a worker has the job.

// beginAsk begins to record the lookup that has begun. Of other requests, and of those that are refused for what they say,
// nothing is recorded.
func (s *session) beginAsk(q *netproto.Request) {
	err := s.inline.err
	if j := s.jobs.current; j != nil {
		err = j.err
	}
	if op := &operations[q.Tag]; s.pool == nil || !op.lookup || op.inline != overMemory || err != nil && !errors.Is(err, errBusy) {
		return
	}
	if err != nil && s.checkHashes(q) != nil { // busy comes before what the request says
		return
	}
	if s.asks.asker == "" {
		s.asks.asker = peerHost(s.conn.peer)
	}
	s.asks.current = s.pool.account.NewAsk(s.asks.asker, tokens.Prompt{
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

// dropAsk forgets the lookup that is being received.
func (s *session) dropAsk() {
	s.asks.current.Drop()
	s.asks.current = nil
}

// takeAsk returns the ask of the request that has ended, nil if there is none.
func (s *session) takeAsk() *tokens.Ask {
	a := s.asks.current
	s.asks.current = nil
	return a
}

// setAsk gives a job the ask of its request.
func (s *session) setAsk(j *job) {
	if j.ask = s.takeAsk(); j.ask != nil {
		j.askIndex = len(s.asks.jobs)
		s.asks.jobs = append(s.asks.jobs, j)
	}
}

// answerJobAsk records a job whose reply is being written.
func (s *session) answerJobAsk(j *job) {
	if j.ask == nil {
		return
	}
	asking, last := s.asks.jobs, len(s.asks.jobs)-1
	asking[j.askIndex] = asking[last]
	asking[j.askIndex].askIndex, asking[last] = j.askIndex, nil
	s.asks.jobs = asking[:last]
	s.answerAsk(j.ask, j.answer, j.missing, j.err)
	j.ask = nil
}

// answerAsk sets what a lookup has found, whose reply is being written.
func (s *session) answerAsk(a *tokens.Ask, answer lookup.Answer, missing tokens.Missing, err error) {
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

// recordNow records a change, or a lookup that gets no answer. nil is allowed.
func (s *session) recordNow(a *tokens.Ask) {
	if a != nil {
		s.conn.loop.recorder.Record(a, monotime.Now())
	}
}

// beginChange begins to record keys that are stored or evicted inline.
func (s *session) beginChange(q *netproto.Request) {
	s.asks.current = s.pool.account.NewChange(s.inline.change.Place(), q.NumHashes, q.Tag == netproto.TagEvict)
}

// endInlineAsk records what was answered inline.
func (s *session) endInlineAsk(tag netproto.Tag, answer lookup.Answer, err error) {
	switch a := s.takeAsk(); {
	case operations[tag].lookup:
		s.answerAsk(a, answer, tokens.Missing{}, err)
	case a != nil && (err == nil || s.inline.change.Changed() > 0):
		s.turn.asks = append(s.turn.asks, a) // in order with lookups
	default:
		a.Drop()
	}
}

// sampleMissing keeps some blocks that a lookup over a store lacked, for a look whether they are saved. A worker calls it.
func (j *job) sampleMissing() {
	e := &j.answer.Ending
	if j.pool.account == nil || j.service.Backend() == nil || e.Failed {
		return
	}
	found := e.Found
	if e.Group >= 0 {
		found = int(max(j.answer.Hit.Tokens, j.start) / int64(j.pool.hashBlock))
	}
	groups, keys := j.service.SampleMissing(j.numTokens, j.hashes(), found)
	j.missing = tokens.Missing{Groups: groups, Hashes: coordinator.NewHashes(keys, j.q.HashLen)}
}

// recordReset records that a worker has reset the pool.
func (j *job) recordReset(err error) {
	if err != nil && !errors.Is(err, api.ErrPartlyDone) {
		return
	}
	j.session.recordNow(j.pool.account.NewEmptied(true))
	if s := j.session.shared; s.backend != nil { // which may have removed what others have there, too
		for _, p := range s.pools.list() {
			if p != j.pool {
				j.session.recordNow(p.account.NewEmptied(false))
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

// recordPlace records keys that a worker has stored or evicted at a place. What is stored over a store is not recorded: engines
// store there themselves.
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

// isKnown reports whether a peer with a credential, nil for none, is told of single prompts, and of others: it is of this machine,
// or has one. Workers call it.
func (s *session) isKnown(c *access.Credential) bool {
	switch peer := s.conn.peer.(type) {
	case *net.TCPAddr:
		return c != nil || peer.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return c != nil
}

// missing stands for the place of lost tokens where it is not told.
const missing = "missing"

// explainTokens returns where the tokens of an explained prompt would be counted now. Peers that the server does not know are
// told neither the place of lost tokens nor exact times.
func (j *job) explainTokens(e *api.Explanation) *api.LostTokens {
	hashes := j.hashes()
	a := j.pool.account.NewAsk("", tokens.Prompt{NumTokens: j.numTokens, Start: j.start, NumHashes: j.q.NumHashes})
	if a == nil {
		return nil
	}
	defer a.Drop()
	addAll(a, hashes)
	a.Fill(e.HitTokens, e.Ending)
	told := j.session.shared.accounts.Explain(a)
	if !j.session.isKnown(j.credential) {
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
		told.AskedAt, told.WholeAt = told.AskedAt.Truncate(exact), told.WholeAt.Truncate(exact)
	}
	return &told
}
