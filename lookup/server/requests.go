package server

import (
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/netproto"
)

// The requests of a connection, as their bytes arrive: a session is the netproto.Handler of its conn, and its protocol.

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
