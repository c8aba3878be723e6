package server

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// session is one connection: the reader of its requests, the handler that serves them,
// and what goes out. It belongs to its event loop; the atomic fields are for the sweeper
// of timeouts.
type session struct {
	server  *Server
	reader  *netproto.Reader
	handler requestHandler

	conn           replyWriter
	out            *bufpool.Buffer // replies of this turn of the event loop
	sendErr        error           // why nothing more can be sent
	messageEnded   bool            // a message ended in this turn
	turnStart      time.Time
	anchorRequests int // requests by anchors served in this turn, see anchorsTurnLimit

	metrics     *loopMetrics
	began       int64    // when the message that ends began, by monotime
	answered    int64    // lookups answered in this turn
	earlyLookup int64    // when the first of them began, if that was in an earlier turn, otherwise 0
	peer        net.Addr // for the log, may be nil
	cause       error    // why the connection is closed, if reason does not say it all

	messageSince   atomic.Int64  // when the message being received began, by monotime; 0 if none
	lastActive     atomic.Int64  // when the last byte came, by monotime
	handshakeSince atomic.Int64  // when the unfinished ZMTP handshake began, by monotime; 0 if none
	ttl            atomic.Int64  // nanoseconds of silence after which a ZMTP peer is gone by its own word, 0 if it gave none
	reason         atomic.Uint32 // closeReason, once it is known
	inFlight       atomic.Int64  // requests that wait for a backend or for their turn to be answered
	unsent         atomic.Int64  // bytes of replies that the peer has not taken
}

// replyWriter is what a session needs of its gnet.Conn.
type replyWriter interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written and not yet taken by the peer
}

// newSession returns the session of a connection. wakeEventLoop makes its event loop call
// resume, from any goroutine; it is used over a backend only.
func newSession(server *Server, conn replyWriter, wakeEventLoop func()) *session {
	limits := netproto.Limits{MaxMessage: server.cfg.Limits.MaxMessage, MaxFrames: server.cfg.Limits.MaxFrames}
	s := &session{server: server, conn: conn, metrics: &server.noLoop, reader: netproto.NewReader(limits, server.service.Alignment())}
	s.lastActive.Store(monotime.Now())
	if server.remote != nil {
		s.handler = newRemoteHandler(s, wakeEventLoop)
	} else {
		s.handler = &memoryHandler{session: s}
	}
	return s
}

// flushAt is the size in bytes at which replies are sent before the turn is
// over, so that a burst of small requests with large replies stays bounded.
const flushAt = 64 << 10

// receive takes the bytes of one turn, all of them, and writes the replies. It
// reports why the connection must be closed, nil if it goes on.
func (s *session) receive(p []byte) error {
	s.turnStart, s.anchorRequests = time.Now(), 0
	s.lastActive.Store(monotime.At(s.turnStart))
	s.out = bufpool.Get()
	before := s.reader.Copied()
	err := s.reader.Feed(p, s)
	s.server.copied.Add(int64(s.reader.Copied() - before))
	s.endTurn()
	if s.sendErr != nil {
		return s.sendErr
	}
	s.observeLookups()
	s.updateMessageSince()
	s.updatePeerTimes()
	return err
}

// resume appends the replies that have become ready, on the event loop after a Wake. It
// reports like receive.
func (s *session) resume() error {
	s.updateUnsent()
	s.out = bufpool.Get()
	s.handler.resume()
	s.endTurn()
	return s.sendErr
}

// endTurn sends the replies of a turn.
func (s *session) endTurn() {
	s.flush(0)
	s.out.Release()
	s.out = nil
}

// observeLookups records how long the lookups of a turn took, once for all of them:
// their replies went out together.
func (s *session) observeLookups() {
	if s.answered == 0 {
		return
	}
	took := int64(time.Since(s.turnStart))
	if s.earlyLookup != 0 {
		s.metrics.observeDurations(took+max(monotime.At(s.turnStart)-s.earlyLookup, 0), 1)
		s.answered--
	}
	if s.answered > 0 {
		s.metrics.observeDurations(took, s.answered)
	}
	s.answered, s.earlyLookup = 0, 0
}

// countLookup counts an answered lookup for observeLookups.
func (s *session) countLookup(hashes int) {
	s.metrics.observeHashes(hashes)
	s.answered++
	if s.began != s.lastActive.Load() {
		s.earlyLookup = s.began
	}
}

// updateBegan sets when the message that ends now began: only the first one that ends in
// a turn can have begun in an earlier one.
func (s *session) updateBegan() {
	s.began = s.lastActive.Load()
	if since := s.messageSince.Load(); since != 0 && !s.messageEnded {
		s.began = since
	}
}

// updatePeerTimes tells the sweeper what ZMTP says of the peer's time.
func (s *session) updatePeerTimes() {
	if ttl := int64(s.reader.TTL()); ttl != s.ttl.Load() {
		s.ttl.Store(ttl)
	}
	switch since := s.handshakeSince.Load(); {
	case !s.reader.InHandshake():
		if since != 0 {
			s.handshakeSince.Store(0)
		}
	case since == 0:
		s.handshakeSince.Store(s.lastActive.Load())
	}
}

// updateMessageSince tells the sweeper whether a message is being received.
func (s *session) updateMessageSince() {
	switch {
	case !s.reader.InMessage():
		s.messageSince.Store(0)
	case s.messageEnded || s.messageSince.Load() == 0:
		s.messageSince.Store(s.lastActive.Load())
	}
	s.messageEnded = false
}

// flush sends the replies if they have more than minBytes bytes.
func (s *session) flush(minBytes int) {
	if s.sendErr != nil || len(s.out.B) <= minBytes {
		return
	}
	if _, err := s.conn.Write(s.out.B); err != nil {
		s.sendErr = errConnGone // OnClose has already run
	} else if s.updateUnsent() > s.server.cfg.Limits.MaxUnsent {
		s.sendErr = errSlowReader
	}
	s.out.B = s.out.B[:0]
}

// updateUnsent tells a draining server how many bytes the peer has not taken.
func (s *session) updateUnsent() int {
	n := s.conn.OutboundBuffered()
	if int64(n) != s.unsent.Load() {
		s.unsent.Store(int64(n))
	}
	return n
}

// Reasons for which replies cannot be sent.
var (
	errConnGone   = errors.New("server: connection is gone")
	errSlowReader = errors.New("server: peer does not read its replies")
)

// Begin implements netproto.Handler.
func (s *session) Begin(q *netproto.Request) bool {
	return s.sendErr == nil && s.handler.begin(q)
}

// Hashes implements netproto.Handler.
func (s *session) Hashes(q *netproto.Request, hashes []byte) bool { return s.handler.add(q, hashes) }

// End implements netproto.Handler.
func (s *session) End(q *netproto.Request) {
	s.updateBegan()
	s.messageEnded = true
	if s.sendErr != nil {
		s.handler.discard()
		return
	}
	s.handler.end(q)
}

// Dropped implements netproto.Handler.
func (s *session) Dropped(*netproto.Request) {
	s.messageEnded = true
	s.handler.discard()
	s.server.dropped.Add(1)
}

// Control implements netproto.Handler.
func (s *session) Control(out []byte) {
	s.messageEnded = true // a message in this turn began behind it
	if len(out) == 0 {
		s.server.ignored.Add(1)
		return
	}
	if s.sendErr == nil {
		s.out.B = append(s.out.B, out...)
		s.flush(flushAt)
	}
}
