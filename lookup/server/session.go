package server

import (
	"cmp"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/cpu"
)

// session is one connection: the reader of its requests, and their replies. It belongs to its event
// loop. The atomic fields are read by closeOverdue, drain and closeLate. Whoever closes
// the connection sets reason.
type session struct {
	_      cpu.CacheLinePad // what other event loops write to is on other cache lines
	server *Server
	authorization
	pool    *pool           // that its requests are about, nil if none
	service *lookup.Service // of the pool, with the retention interval of the engine; nil if none
	client  clientInfo      // of the last pool request that was served
	reader  *netproto.Reader

	inline inlineRequest // the request that is answered as it arrives
	jobs   jobs          // the requests that workers answer
	wanted bool          // more hashes of the request that is being received can change its answer
	ask    *tokens.Ask   // records it, nil if nothing is recorded
	asker  string        // of its lookups: what its client says, else a host; "" before the first

	conn         replyWriter
	out          *bufpool.Buffer // replies of this turn that are not written; nil outside of turns
	sendErr      error           // why no more replies are sent, nil while they are
	denied       error           // why the request that is being received may not be served, nil if it may
	messageEnded bool            // a message ended in this turn
	written      int64           // bytes of replies
	accepted     int64           // those that the kernel had accepted at the last updateUnsent

	turnStart      time.Time
	ended          uint      // requests that have ended
	inFlightBefore int       // jobs in flight when the limits were adopted
	turnEnd        uint      // the turn is not over before as many have
	barrier        *job      // nothing after it is read before it has ended; nil if there is none
	kept           keptBytes // that arrived meanwhile, or were left by a turn
	closed         bool
	queued         bool // it is in eventLoop.waiting; guarded by eventLoop.mu

	loop            *eventLoop
	metrics         *loopMetrics  // of its event loop
	began           int64         // when the message that ends now began, in monotime
	lookupsAnswered int64         // in this turn
	earlierBegan    int64         // when the first of them began, if in an earlier turn; otherwise 0
	peer            net.Addr      // for the log, may be nil
	peerConn        peerConn      // nil in tests
	halfClosed      *halfClosed   // nil before the peer's FIN
	tls             *tlspair.Conn // nil without TLS
	closeErr        error         // why the connection is closed, if there is more than reason

	limits         atomic.Pointer[Limits] // of the message that is being received, or of the last one
	messageSince   atomic.Int64           // when the message being received began, in monotime; 0 if none
	lastActive     atomic.Int64           // when the last byte arrived, in monotime
	zmtp           atomic.Bool            // its peer speaks ZMTP
	handshakeSince atomic.Int64           // when the unfinished ZMTP handshake began, in monotime; 0 if none
	ttl            atomic.Int64           // of the ZMTP peer's heartbeat, in nanoseconds; 0 if none
	keeping        atomic.Bool            // it has kept bytes
	reason         atomic.Uint32          // closeReason; closedByPeer until it is set
	inFlight       atomic.Int64           // jobs without a reply
	unsent         atomic.Int64           // bytes of replies that the kernel has not accepted yet
	unsentSince    atomic.Int64           // when the kernel last accepted some of them, in monotime; 0 if there are none
	held           admission.Holder       // bytes charged to Server.admission
	_              cpu.CacheLinePad
}

// replyWriter is the part of gnet.Conn that a session uses.
type replyWriter interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written that the kernel has not accepted yet
}

// peerConn is the part of gnet.Conn that the server uses of an open connection.
type peerConn interface {
	replyWriter
	Fd() int
	Wake(callback gnet.AsyncCallback) error
	Close() error
}

// newSession returns the session of an accepted connection.
func newSession(server *Server, loop *eventLoop, conn replyWriter, p *pendingConn) *session {
	s := &session{server: server, conn: conn, loop: loop, metrics: &loop.metrics, reader: netproto.NewReader(netproto.Limits{}, 0)}
	s.adoptLimits()
	s.lastActive.Store(monotime.Now())
	s.setPool(server.pools.enterOwn(), nil)
	s.authorize(p)
	return s
}

// close releases what the session holds. The connection is closed.
func (s *session) close() {
	s.dropAsk()
	s.recordAsks(false)
	s.inline.release()
	s.closeJobs()
	s.closed = true
	if s.out != nil { // a turn reads some of them
		s.kept = keptBytes{}
	}
	s.kept.release()
	s.keeping.Store(false)
	s.server.pools.move(s.pool, nil)
}

// closeWith sets the reason why the connection ends and returns the action that ends it.
func (s *session) closeWith(reason closeReason) gnet.Action {
	s.reason.Store(uint32(reason))
	return gnet.Close
}

// flushAt is the size in bytes at which replies are written before the end of the turn, so
// that small requests with large replies take bounded memory.
const flushAt = 64 << 10

// beginTurn begins a turn: what an event loop does for one connection before it serves the next.
func (s *session) beginTurn() {
	s.turnStart = time.Now()
	s.out = replyBuffers.Get().(*bufpool.Buffer)
}

// endTurn writes the replies of the turn. It returns err, or why no reply is sent any more.
func (s *session) endTurn(err error) error {
	s.flush(0)
	s.recordAsks(false)
	if s.out.B = s.out.B[:0]; cap(s.out.B) <= maxReplies {
		replyBuffers.Put(s.out)
	}
	s.out = nil
	if s.sendErr != nil { // OnClose may have given back what was charged
		return s.sendErr
	}
	s.observeTurn()
	s.updateMessageSince()
	s.updatePeer()
	return cmp.Or(err, s.updateHeld())
}

// replyBuffers holds the buffers of session.out. Each event loop uses one at a time. The pool of
// package bufpool counts what is released in variables that all loops would write to.
var replyBuffers = sync.Pool{New: func() any { return new(bufpool.Buffer) }}

// maxReplies is the largest capacity in bytes of a buffer that is used again.
const maxReplies = 1 << 20

// observeTurn adds the turn and its lookups to the metrics. All lookups get one duration, as
// their replies were written together. Only the first may have begun before its last bytes
// arrived.
func (s *session) observeTurn() {
	if s.lookupsAnswered == 0 {
		return
	}
	arrived := s.lastActive.Load()
	took := monotime.At(s.turnStart) + int64(time.Since(s.turnStart)) - arrived
	if s.earlierBegan != 0 {
		s.metrics.observeDurations(took+max(arrived-s.earlierBegan, 0), 1)
		s.lookupsAnswered--
	}
	if s.lookupsAnswered > 0 {
		s.metrics.observeDurations(took, s.lookupsAnswered)
	}
	s.lookupsAnswered, s.earlierBegan = 0, 0
}

// countLookup counts a lookup that was answered in the turn that read its end, and its hashes.
func (s *session) countLookup(hashes int) {
	s.metrics.observeHashes(hashes)
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

// updatePeer sets zmtp, ttl and handshakeSince from the reader.
func (s *session) updatePeer() {
	if s.reader.ZMTP() && !s.zmtp.Load() {
		s.zmtp.Store(true)
	}
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
	if s.sendErr != nil {
		return
	}
	s.written += int64(len(s.out.B))
	if _, err := s.conn.Write(s.out.B); err != nil {
		s.sendErr = errConnGone // OnClose has already run
	} else if s.updateUnsent() > s.limits.Load().MaxUnsent {
		s.sendErr = errSlowReader
	}
	s.out.B = s.out.B[:0]
	s.recordAsks(s.sendErr == nil)
}

// The values of session.sendErr, besides errRevoked and errExpired.
var (
	errConnGone   = errors.New("the connection is gone")
	errSlowReader = errors.New("the peer does not read its replies")
	errMemory     = errors.New("memory is short, and more is kept for this connection than it may have in flight")
	errInFlight   = errors.New("more is in flight than limits.max_in_flight and the limits of a message allow")
)

// adoptLimits takes the limits of the server for the next message. Nobody is closed for what arrived by earlier ones.
func (s *session) adoptLimits() {
	limits := s.server.limits.Load()
	if limits == s.limits.Load() {
		return
	}
	s.limits.Store(limits)
	s.reader.SetMaxMessage(limits.MaxMessage)
	s.inFlightBefore = int(s.inFlight.Load())
}

// Begin implements netproto.Handler.
func (s *session) Begin(q *netproto.Request) bool {
	switch {
	case s.sendErr != nil || !s.allow(q):
		return false
	case s.answersInline(q.Tag):
		s.wanted = s.beginInline(q)
	default:
		s.wanted = s.beginJob(q)
	}
	s.beginAsk(q)
	return s.wanted || s.ask != nil
}

// answersInline reports whether a request that begins now is answered as it arrives. One that comes
// after a pending job is a job, too: their effects and replies have an order.
func (s *session) answersInline(tag netproto.Tag) bool {
	kind := operations[tag].inline
	return s.inFlight.Load() == 0 && (kind == always || kind == overMemory && s.server.backend == nil)
}

// Hashes implements netproto.Handler.
func (s *session) Hashes(q *netproto.Request, hashes []byte) bool {
	if !s.allow(q) {
		return false
	}
	if s.ask != nil {
		s.ask.AddHashes(hashes, q.HashLen)
	}
	switch {
	case !s.wanted:
	case s.jobs.current != nil:
		s.wanted = s.jobs.current.addHashes(hashes)
	default:
		s.wanted = s.inline.addHashes(q, hashes)
	}
	return s.wanted || s.ask != nil
}

// End implements netproto.Handler. It returns false if what follows must wait.
func (s *session) End(q *netproto.Request) bool {
	s.updateBegan()
	s.messageEnded = true
	if s.sendErr == nil {
		s.allow(q) // otherwise the request has a problem, or sendErr is set
	}
	if s.ask != nil && s.problemOf(q) != nil {
		s.dropAsk()
	}
	switch {
	case s.sendErr != nil:
		s.recordNow(s.takeAsk())
		s.inline.release()
		s.dropCurrent()
		return false
	case s.inline.active || s.endsInline(q):
		s.endInline(q)
	default:
		s.acceptJob(q)
	}
	s.denied = nil
	s.flush(flushAt)
	s.adoptLimits()
	s.ended++
	return !s.mustKeep() && s.sendErr == nil && (s.ended%requestsPerLook != 0 || !s.isTurnOver())
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

// endsInline reports whether a request that has not begun is answered at once. A flood of requests with
// problems must be cheap.
func (s *session) endsInline(q *netproto.Request) bool {
	switch {
	case s.jobs.current != nil:
		return false
	case s.problemOf(q) != nil && q.Tag != netproto.TagPool && q.Tag != netproto.TagAuth:
		return s.inFlight.Load() == 0
	}
	return s.answersInline(q.Tag)
}

// Dropped implements netproto.Handler.
func (s *session) Dropped(*netproto.Request) {
	s.messageEnded = true
	s.denied = nil
	s.dropAsk()
	s.inline.release()
	s.dropCurrent()
}

// Control implements netproto.Handler.
func (s *session) Control(out []byte) {
	if !s.reader.InMessage() {
		s.messageEnded = true // the next message of this turn begins after it
	}
	if s.sendErr == nil {
		s.out.B = append(s.out.B, out...)
		s.flush(flushAt)
	}
}
