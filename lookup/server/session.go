package server

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/cpu"
)

// session is one connection: the reader of its requests, their handler and their replies.
// It belongs to its event loop. The atomic fields are read by closeOverdue, drain, closeLargest and
// Connections. The first and the third also set reason.
type session struct {
	_      cpu.CacheLinePad // what other event loops write to is on other cache lines
	server *Server
	authorization
	pool    *pool                    // that its requests are about, nil if none
	rules   *coordinator.Coordinator // of the pool, with the retention interval of the engine; nil if none
	reader  *netproto.Reader
	handler requestHandler

	conn         replyWriter
	out          *bufpool.Buffer // replies that feed or handleWake will write; nil outside of them
	sendErr      error           // why no more replies are sent, nil while they are
	messageEnded bool            // a message ended in this call of feed
	accepted     int64           // those of them that the kernel had accepted at the last updateUnsent

	turnStart time.Time
	workLeft  int               // in this turn, see turnShare
	ending    bool              // the handler's end is to be called again
	backlog   []byte            // bytes for the next turns; the first of them have been served
	array     *[readBuffer]byte // pooled: the memory of a short backlog; nil if there is no backlog
	served    int               // bytes at the front of backlog that have been served
	reading   *readPauser       // nil if reading cannot be paused
	queue     *turnQueue        // of its event loop, nil in tests
	queued    bool              // it is in queue

	opened          time.Time // in UTC
	stats           connStats
	metrics         *loopMetrics // of its event loop
	began           int64        // when the message that ends now began, in monotime
	lookupsAnswered int64        // in this turn
	earlierBegan    int64        // when the first of them began, if in an earlier turn; otherwise 0
	peer            net.Addr     // for the log, may be nil
	gnetConn        gnet.Conn    // nil in tests
	tls             *tlsConn     // nil without TLS
	cause           error        // why the connection is closed, if there is more than reason

	messageSince   atomic.Int64  // when the message being received began, in monotime; 0 if none
	lastActive     atomic.Int64  // when the last byte arrived, in monotime
	handshakeSince atomic.Int64  // when the unfinished ZMTP handshake began, in monotime; 0 if none
	ttl            atomic.Int64  // of the ZMTP peer's heartbeat, in nanoseconds; 0 if none
	waiting        atomic.Bool   // it has a backlog or a request to end, and waits for a further turn
	reason         atomic.Uint32 // closeReason; closedByPeer until it is set
	inFlight       atomic.Int64  // requests over a backend without a reply
	unsent         atomic.Int64  // bytes of replies that the kernel has not accepted yet
	unsentSince    atomic.Int64  // when the kernel last accepted some of them, in monotime; 0 if there are none
	held           atomic.Int64  // bytes charged to Server.memory
	_              cpu.CacheLinePad
}

// replyWriter is the part of gnet.Conn that a session uses.
type replyWriter interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written that the kernel has not accepted yet
}

// newSession returns the session of an accepted connection. wakeEventLoop makes its event loop call
// handleWake; only a remoteHandler calls it, from any goroutine.
func newSession(server *Server, loop *eventLoop, conn replyWriter, p *pendingConn, wakeEventLoop func()) *session {
	of := server.limits.Load()
	limits := netproto.Limits{MaxMessage: of.MaxMessage, MaxFrames: of.MaxFrames}
	s := &session{server: server, conn: conn, metrics: &loop.metrics, queue: loop.turns, reader: netproto.NewReader(limits, 0), opened: time.Now().UTC()}
	s.lastActive.Store(monotime.Now())
	server.pools.move(nil, server.pools.own)
	s.setPool(server.pools.own, nil)
	s.authorize(p)
	if server.backend != nil {
		s.handler = newRemoteHandler(s, wakeEventLoop)
	} else {
		s.handler = &memoryHandler{session: s}
	}
	return s
}

// closeWith sets the reason why the connection ends and returns the action that ends it.
func (s *session) closeWith(reason closeReason) gnet.Action {
	s.reason.Store(uint32(reason))
	return gnet.Close
}

// flushAt is the size in bytes at which replies are written before the end of the turn, so
// that small requests with large replies take bounded memory.
const flushAt = 64 << 10

// receive begins a turn with the next bytes of the connection, and writes the replies. It
// returns an error if the connection must be closed. p is borrowed until it returns.
func (s *session) receive(p []byte) error {
	s.beginTurn()
	s.lastActive.Store(monotime.At(s.turnStart))
	return s.receiveMore(p)
}

// receiveMore serves further bytes in the same turn.
func (s *session) receiveMore(p []byte) error {
	add(&s.stats.received, int64(len(p)))
	if s.waiting.Load() {
		return s.addBacklog(p)
	}
	n, err := s.feed(p)
	if err != nil {
		return err
	}
	if n == len(p) && !s.ending {
		return nil
	}
	return s.beginBacklog(p[n:])
}

// feed reads bytes until they or the work of the turn are used up, and writes the replies. It
// returns how many it has read, and an error if the connection must be closed.
func (s *session) feed(p []byte) (n int, err error) {
	s.out = replyBuffers.Get().(*bufpool.Buffer)
	before := s.reader.Copied()
	n, err = s.reader.Feed(p, s)
	s.workLeft -= n / bytesPerUnit
	if copied := s.reader.Copied() - before; copied > 0 {
		s.metrics.copied.Add(int64(copied))
	}
	s.writeReplies()
	if s.sendErr != nil {
		return n, s.sendErr
	}
	s.observeTurn()
	s.updateMessageSince()
	s.updatePeerTimes()
	s.updateHeld()
	return n, err
}

// handleWake writes the replies that have become ready. The event loop calls it after wakeEventLoop and
// wakeSessions. It returns an error as receive does, also if the credential is gone.
func (s *session) handleWake() error {
	s.updateUnsent()
	s.reading.restore()
	s.out = replyBuffers.Get().(*bufpool.Buffer)
	if s.stillAuthorized() {
		s.handler.handleWake()
	}
	s.writeReplies()
	if s.sendErr != nil { // OnClose may have given back what was charged
		return s.sendErr
	}
	s.updateHeld()
	if s.waiting.Load() {
		s.reading.pause()
	}
	return s.sendErr
}

// replyBuffers holds the buffers of session.out. Each event loop uses one at a time. The pool of
// package bufpool counts what is released in variables that all loops would write to.
var replyBuffers = sync.Pool{New: func() any { return new(bufpool.Buffer) }}

// maxReplies is the largest capacity in bytes of a buffer that is used again.
const maxReplies = 1 << 20

// writeReplies writes the replies in out and releases it.
func (s *session) writeReplies() {
	s.flush(0)
	if s.out.B = s.out.B[:0]; cap(s.out.B) <= maxReplies {
		replyBuffers.Put(s.out)
	}
	s.out = nil
}

// observeTurn adds the turn and its lookups to the metrics. All lookups get one duration, as
// their replies were written together. Only the first may have begun before its last bytes
// arrived.
func (s *session) observeTurn() {
	elapsed := int64(time.Since(s.turnStart))
	s.metrics.observeTurn(turnShare-s.workLeft, elapsed)
	if s.lookupsAnswered == 0 {
		return
	}
	arrived := s.lastActive.Load()
	took := monotime.At(s.turnStart) + elapsed - arrived
	if s.earlierBegan != 0 {
		s.metrics.observeDurations(took+max(arrived-s.earlierBegan, 0), 1)
		s.lookupsAnswered--
	}
	if s.lookupsAnswered > 0 {
		s.metrics.observeDurations(took, s.lookupsAnswered)
	}
	s.lookupsAnswered, s.earlierBegan = 0, 0
}

// countLookup counts an answered lookup and its hashes for observeLookups.
func (s *session) countLookup(hashes int) {
	s.metrics.observeHashes(hashes)
	s.stats.newLookups++
	s.lookupsAnswered++
	if s.began != s.lastActive.Load() {
		s.earlierBegan = s.began
	}
}

// updateBegan sets began for the message that ends now. Only the first that ends in a turn
// can have begun in an earlier one.
func (s *session) updateBegan() {
	s.began = s.lastActive.Load()
	if since := s.messageSince.Load(); since != 0 && !s.messageEnded {
		s.began = since
	}
}

// updatePeerTimes sets ttl and handshakeSince from the reader.
func (s *session) updatePeerTimes() {
	if ttl := int64(s.reader.TTL()); ttl != s.ttl.Load() {
		s.ttl.Store(ttl)
	}
	if !s.stats.isZMTP.Load() && (s.reader.InHandshake() || s.reader.ZMTP()) {
		s.stats.isZMTP.Store(true)
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

// updateMessageSince sets messageSince at the end of a turn.
func (s *session) updateMessageSince() {
	switch {
	case !s.reader.InMessage():
		if s.messageSince.Load() != 0 {
			s.messageSince.Store(0)
		}
	case s.messageEnded || s.messageSince.Load() == 0:
		s.messageSince.Store(s.lastActive.Load())
	}
	s.messageEnded = false
}

// flush writes the replies if they have more than minBytes bytes, and sets sendErr if that
// fails.
func (s *session) flush(minBytes int) {
	if len(s.out.B) <= minBytes {
		return
	}
	s.publishReplies() // first: who has a reply finds it counted
	if s.sendErr != nil {
		return
	}
	add(&s.stats.written, int64(len(s.out.B)))
	if _, err := s.conn.Write(s.out.B); err != nil {
		s.sendErr = errConnGone // OnClose has already run
	} else if s.updateUnsent() > s.server.limits.Load().MaxUnsent {
		s.sendErr = errSlowReader
	}
	s.out.B = s.out.B[:0]
	if s.sendErr != nil {
		s.reader.Pause() // further requests are not served
	}
}

// The values of session.sendErr, beside errRevoked and errExpired.
var (
	errConnGone   = errors.New("server: connection is gone")
	errSlowReader = errors.New("server: peer does not read its replies")
)

// Begin implements netproto.Handler.
func (s *session) Begin(q *netproto.Request) bool {
	return s.sendErr == nil && s.allow(q) && s.handler.begin(q)
}

// Hashes implements netproto.Handler.
func (s *session) Hashes(q *netproto.Request, hashes []byte) bool {
	if !s.allow(q) {
		return false
	}
	consumed, wanted := s.handler.addHashes(q, hashes)
	if consumed < len(hashes) && wanted {
		s.reader.Unread(len(hashes) - consumed)
	}
	s.pauseIfSpent()
	return wanted
}

// End implements netproto.Handler.
func (s *session) End(q *netproto.Request) {
	if !s.ending {
		s.updateBegan()
		s.workLeft -= workOf(q.Tag)
		if q.Tag == netproto.TagPool && s.queue != nil {
			s.repeatEnd() // until a turn from the queue
			return
		}
	}
	s.ending = false
	if s.sendErr == nil {
		s.allow(q) // otherwise the handler refuses it, or sendErr is set
	}
	if s.sendErr != nil {
		s.handler.releaseRequest()
	} else {
		before := len(s.out.B)
		if !s.handler.end(q) {
			s.repeatEnd()
			return
		}
		s.workLeft -= max(len(s.out.B)-before, 0) / bytesPerUnit
	}
	s.messageEnded = true
	s.pauseIfSpent()
}

// repeatEnd ends the turn inside of End, which is called again in the next one.
func (s *session) repeatEnd() {
	s.ending = true
	s.reader.RepeatEnd()
}

// Dropped implements netproto.Handler.
func (s *session) Dropped(*netproto.Request) {
	s.workLeft -= requestWork
	s.messageEnded = true
	s.handler.releaseRequest()
	s.metrics.dropped.Add(1)
	s.pauseIfSpent()
}

// Control implements netproto.Handler.
func (s *session) Control(out []byte) {
	s.workLeft -= requestWork
	s.messageEnded = true // the next message of this turn begins after it
	s.pauseIfSpent()
	if len(out) == 0 {
		s.metrics.ignored.Add(1)
		return
	}
	if s.sendErr == nil {
		s.out.B = append(s.out.B, out...)
		s.flush(flushAt)
	}
}

// pauseIfSpent ends the turn if no work is left.
func (s *session) pauseIfSpent() {
	if s.workLeft <= 0 {
		s.reader.Pause()
	}
}
