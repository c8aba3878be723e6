package server

import (
	"golang.org/x/sys/cpu"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// A session is what the requests of a connection mean. It implements protocol for its conn: see there for what else a conn
// asks. What it asks of its conn: flush, fail, endRequest and nextMessage, and charge and fits for memory.

// session is what the requests of a connection mean: who may, in which order, inline or by a worker. It implements
// protocol, and belongs to the event loop of its conn.
type session struct {
	conn   *conn
	turn   *turn // of its event loop: replies go there
	shared *shared
	authorization
	pool    *pool           // that its requests are about, nil if none
	service *lookup.Service // of the pool, with the retention interval of the engine; nil if none

	inline inlineRequest // the request that is answered as it arrives
	jobs   *jobs         // the requests that workers answer
	wanted bool          // more hashes of the request that is being received can change its answer
	denied error         // why the request that is being received may not be served, nil if it may
	asks   *asks         // what is recorded of it
}

// newSession makes what an accepted connection is for.
func newSession(shared *shared, c *conn, p *pendingConn) *session {
	parts := new(struct { // what other event loops write to is on other cache lines
		_       cpu.CacheLinePad
		session session
		jobs    jobs
		asks    asks
		_       cpu.CacheLinePad
	})
	s := &parts.session
	s.conn, s.turn, s.shared, s.jobs, s.asks = c, &c.loop.turn, shared, &parts.jobs, &parts.asks
	s.jobs.session, s.asks.session = s, s
	s.authorization = authorization{times: c.times, listener: p.listener, settings: p.settings, certificates: p.certificates}
	c.protocol = s
	s.setPool(shared.pools.enterOwn(), nil)
	s.begin()
	return s
}

// begin gives the connection the authorization that follows from its listener and its certificates.
func (s *session) begin() {
	s.setCredential(s.settings.Rules.FindCertificate(s.certificates.Names()))
	s.beginWithFirstPool()
}

// wake implements protocol: jobs have ended, or the listener has new settings.
func (s *session) wake() {
	if s.stillAuthorized() {
		s.jobs.applyCompleted()
	}
}

// close implements protocol.
func (s *session) close() {
	s.asks.drop()
	s.inline.release()
	s.jobs.close()
	s.shared.pools.move(s.pool, nil)
}

// pending implements protocol.
func (s *session) pending() pending {
	js := s.jobs
	p := pending{
		bytes: s.asks.current.Bytes() + s.inline.held() + js.held(),
		waits: js.running > 0, barrier: js.barrier != nil, over: s.pool.isGone(),
	}
	if j := js.waiting; j != nil && j.isSmall() {
		p.small = j.bytes
	} else if s.conn.unanswered.Load() == 1 && s.conn.unsent.bytes.Load() == 0 && js.bytes <= admission.SmallBytes {
		p.small = js.bytes // replies that others do not read leave room for the only request of a peer
	}
	return p
}

// refuse implements protocol.
func (s *session) refuse(err error) {
	s.inline.refuse(err)
	if j := s.jobs.current; j != nil && j.err == nil {
		j.err = err
		j.release()
	}
}

// Begin implements netproto.Handler.
func (s *session) Begin(q *netproto.Request) bool {
	switch {
	case s.conn.isEnding() || !s.allow(q):
		return false
	case s.answersInline(q.Tag):
		s.wanted = s.beginInline(q)
	default:
		s.wanted = s.jobs.begin(q)
	}
	s.asks.begin(q)
	return s.wanted || s.asks.current != nil
}

// answersInline reports whether a request that begins now is answered as it arrives. One that comes
// after a pending job is a job, too: their effects and replies have an order.
func (s *session) answersInline(tag netproto.Tag) bool {
	kind := operations[tag].inline
	return s.conn.unanswered.Load() == 0 && (kind == always || kind == overIndex && s.shared.backend == nil)
}

// Hashes implements netproto.Handler.
func (s *session) Hashes(q *netproto.Request, hashes []byte) bool {
	if !s.allow(q) {
		return false
	}
	if s.asks.current != nil {
		s.asks.current.AddHashes(hashes, q.HashLen)
	}
	switch {
	case !s.wanted:
	case s.jobs.current != nil:
		s.wanted = s.jobs.current.addHashes(hashes)
	default:
		s.wanted = s.inline.addHashes(q, hashes)
	}
	return s.wanted || s.asks.current != nil
}

// End implements netproto.Handler. It returns false if what follows must wait.
func (s *session) End(q *netproto.Request) bool {
	if !s.conn.isEnding() {
		s.allow(q) // otherwise the request has a problem, or the connection ends
	}
	if s.asks.current != nil && s.problemOf(q) != nil {
		s.asks.drop()
	}
	switch {
	case s.conn.isEnding():
		s.asks.record(s.asks.detach())
		s.inline.release()
		s.jobs.dropCurrent()
		return false
	case s.inline.active || s.endsInline(q):
		s.endInline(q)
	default:
		s.jobs.accept(q)
	}
	s.denied = nil
	return s.conn.endRequest()
}

// endsInline reports whether a request that has not begun is answered at once. A flood of requests with
// problems must be cheap.
func (s *session) endsInline(q *netproto.Request) bool {
	switch {
	case s.jobs.current != nil:
		return false
	case s.problemOf(q) != nil && q.Tag != netproto.TagPool && q.Tag != netproto.TagAuth:
		return s.conn.unanswered.Load() == 0
	}
	return s.answersInline(q.Tag)
}

// Dropped implements netproto.Handler.
func (s *session) Dropped(*netproto.Request) {
	s.conn.nextMessage()
	s.denied = nil
	s.asks.drop()
	s.inline.release()
	s.jobs.dropCurrent()
}

// Control implements netproto.Handler.
func (s *session) Control(out []byte) {
	if !s.conn.reader.InMessage() {
		s.conn.nextMessage()
	}
	s.turn.out = append(s.turn.out, out...)
	s.conn.flush(flushAt)
}

// problemOf returns why a request that has ended cannot be served, nil if it can.
func (s *session) problemOf(q *netproto.Request) error {
	switch {
	case s.denied != nil:
		return s.denied
	case q.Problem != nil:
		return q.Problem
	}
	return nil
}
