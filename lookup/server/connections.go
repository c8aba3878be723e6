package server

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// Connection describes one open connection. Counters count since it was opened. Bytes are those of requests
// and replies, without the records of TLS.
type Connection struct {
	Peer       string    `json:"peer"`     // address of the peer; of a unix socket its process id, if known
	Listen     string    `json:"listen"`   // address that it was accepted at
	Protocol   string    `json:"protocol"` // raw, zmtp, or empty if nothing has arrived yet
	TLS        bool      `json:"tls"`
	Credential string    `json:"credential,omitempty"` // name of its credential, if it has one
	Pool       string    `json:"pool"`                 // name of its pool, "" for the server's own and for none
	Since      time.Time `json:"since"`                // when it was opened, in UTC
	IdleMS     int64     `json:"idle_ms"`              // milliseconds since the last byte arrived, or since a worker completed a job
	Requests   int64     `json:"requests"`             // answered, those refused included
	Lookups    int64     `json:"lookups"`              // of those: lookups and plans answered with a hit
	Refused    int64     `json:"refused"`              // of those: refused, as api.Stat.Failed counts them
	InBytes    int64     `json:"in_bytes"`
	OutBytes   int64     `json:"out_bytes"`
	Unsent     int64     `json:"unsent_bytes"` // replies that the kernel has not accepted yet
	InFlight   int64     `json:"in_flight"`    // requests without a reply that workers answer
}

// Connections returns how many connections are open, and at most limit of them: those with the most
// requests first, and of equal ones the oldest first. The counters of a connection are read one after the
// other while it goes on. A request is counted before its reply is written. The caller owns the result.
func (s *Server) Connections(limit int) (total int, list []Connection) {
	type ranked struct {
		requests int64
		session  *session
	}
	s.mu.Lock()
	open := make([]ranked, 0, len(s.sessions))
	for ses := range s.sessions {
		open = append(open, ranked{ses.stats.requests(), ses})
	}
	s.mu.Unlock()
	slices.SortFunc(open, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), a.session.opened.Compare(b.session.opened))
	})
	for _, o := range open[:min(max(limit, 0), len(open))] {
		list = append(list, o.session.connection())
	}
	return len(open), list
}

// connection describes the session for Connections. Any goroutine may call it.
func (s *session) connection() Connection {
	st := &s.stats
	c := Connection{
		Listen: s.listener.addr, TLS: s.tls != nil, Credential: nameOf(st.credential.Load()),
		Since: s.opened, IdleMS: max(monotime.Now()-s.lastActive.Load(), 0) / int64(time.Millisecond),
		Lookups: st.lookups.Load(), Refused: st.refused.Load(), InBytes: st.received.Load(), OutBytes: st.written.Load(),
		Unsent: s.unsent.Load(), InFlight: s.inFlight.Load(),
	}
	c.Requests = c.Lookups + st.others.Load()
	if s.peer != nil {
		c.Peer = s.peer.String()
	}
	if p := st.pool.Load(); p != nil {
		c.Pool = p.name
	}
	switch {
	case st.isZMTP.Load():
		c.Protocol = "zmtp"
	case c.InBytes > 0:
		c.Protocol = "raw"
	}
	return c
}

// connStats has what Server.Connections reads of a session from other goroutines. Only the session's event
// loop writes it, so it loads and stores instead of adding. Replies are counted in plain fields, and published
// once for all that are written together.
type connStats struct {
	lookups, others   atomic.Int64 // requests answered with a hit, and those answered otherwise
	refused           atomic.Int64 // those of others that were refused
	received, written atomic.Int64 // bytes
	pool              atomic.Pointer[pool]
	credential        atomic.Pointer[access.Credential]
	isZMTP            atomic.Bool

	newReplies, newLookups int64 // replies that are not published yet, and how many of them were hits
}

// requests returns how many requests were answered.
func (st *connStats) requests() int64 { return st.lookups.Load() + st.others.Load() }

// add adds to a counter that no other goroutine writes to.
func add(counter *atomic.Int64, n int64) { counter.Store(counter.Load() + n) }

// countReply counts a reply to a request.
func (s *session) countReply(tag netproto.Tag) {
	s.metrics.requests[tag].Add(1)
	s.stats.newReplies++
}

// publishReplies publishes the replies that were counted.
func (s *session) publishReplies() {
	st := &s.stats
	if st.newLookups > 0 {
		add(&st.lookups, st.newLookups)
	}
	if others := st.newReplies - st.newLookups; others > 0 {
		add(&st.others, others)
	}
	st.newReplies, st.newLookups = 0, 0
}
