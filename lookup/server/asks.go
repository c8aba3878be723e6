package server

import (
	"errors"
	"net"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
)

// What becomes of each lookup is recorded for the account of its pool: see package tokens. An event loop reads all
// hashes of a lookup for it, also those that cannot change the answer: the last one tells requests apart. The ask stays
// with the loop until the reply is written, also while a worker has the job.

// asks are what a session records of its requests.
type asks struct {
	session *session
	current *tokens.Event // of the request that is being received, nil if nothing is recorded
	asker   string        // of its lookups: what its client says, else a host; "" before the first
	jobs    []*job        // those without an answer that have an ask
}

// begin begins to record the lookup that has begun. Of other requests, and of those that are refused for what they say,
// nothing is recorded.
func (as *asks) begin(q *netproto.Request) {
	s := as.session
	err := s.inline.err
	if j := s.jobs.current; j != nil {
		err = j.err
	}
	if op := &operations[q.Tag]; s.pool == nil || !op.lookup || op.inline != overIndex || err != nil && !errors.Is(err, errBusy) {
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
func (as *asks) detach() *tokens.Event {
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
func (as *asks) answer(a *tokens.Event, answer lookup.Answer, missing tokens.Missing, err error) {
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

// record records a change, or a lookup that gets no answer. nil is allowed.
func (as *asks) record(a *tokens.Event) {
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
