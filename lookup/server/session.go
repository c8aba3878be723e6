package server

import (
	"golang.org/x/sys/cpu"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// What a session has. requests.go has what it does.

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

// setPool makes p, which may be nil, the pool of the connection. The pools have counted it.
// described are the rules that the client has described, nil if it has described none. Engines that differ
// only in their retention interval share a pool, and each stores by its own interval.
func (s *session) setPool(p *pool, described *coordinator.Coordinator) {
	s.pool, s.service = p, nil
	if p == nil {
		return
	}
	s.conn.reader.SetAlignment(p.service.Alignment())
	s.service = p.service
	if described != nil {
		// the description has checked the interval
		if of, err := p.service.WithRetentionInterval(described.Pool().RetentionInterval); err == nil {
			s.service = of
		}
	}
}

// leavePool leaves the connection without a pool.
func (s *session) leavePool() {
	s.shared.pools.move(s.pool, nil)
	s.setPool(nil, nil)
}

// beginWithFirstPool gives the connection of a tenant the first of its pools.
func (s *session) beginWithFirstPool() {
	if s.credential.IsTenant() {
		s.setPool(s.shared.pools.moveToFirst(s.credential, s.pool), nil)
	}
}
