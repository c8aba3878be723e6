package server

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
)

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

// authorization is what the peer of a connection may do, and why. It belongs to the connection's
// event loop.
type authorization struct {
	times        *times // of the connection
	listener     *listener
	settings     *Settings // of the listener, those that the other fields follow from
	certificates access.Certificates
	credential   *access.Credential // nil for an anonymous peer
	permissions  access.Permissions
}

// asks are what a session records of its requests.
type asks struct {
	session *session
	current *tokens.Event // of the request that is being received, nil if nothing is recorded
	asker   string        // of its lookups: what its client says, else a host; "" before the first
	jobs    []*job        // those without an answer that have an ask
}

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

// nameOf returns the name of a credential, empty for an anonymous peer.
func nameOf(c *access.Credential) string {
	if c == nil {
		return ""
	}
	return c.Name
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
