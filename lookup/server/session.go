package server

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// session is one connection: the reader of its requests and what the request
// under way needs. It implements netproto.Handler and belongs to its event loop;
// the atomic fields are for the sweeper of timeouts.
type session struct {
	server *Server
	reader *netproto.Reader

	query   *lookup.Query  // the lookup under way, nil otherwise
	change  *lookup.Change // the store or evict under way
	problem error          // why the request under way cannot be served

	flights *flights // requests over a remote backend, nil over the memory index

	conn  replyWriter
	out   *bufpool.Buffer // replies of this turn
	gone  error           // why nothing more can be sent
	ended bool            // a message ended in this turn
	turn  time.Time       // when this turn began
	walks int             // requests by anchors that were served in it

	meter    *meter
	began    int64    // when the message that ends began, by monotime
	answered int64    // lookups of this turn
	early    int64    // when the first of them began, if that was in an earlier turn, otherwise 0
	peer     net.Addr // for the log, may be nil
	cause    error    // why the connection is closed, if reason does not say it all

	messageSince atomic.Int64  // when the message under way began, by monotime; 0 if none
	lastActive   atomic.Int64  // when the last byte came, by monotime
	shakingSince atomic.Int64  // when the ZMTP handshake under way began, by monotime; 0 if none
	ttl          atomic.Int64  // nanoseconds of silence after which a ZMTP peer is gone by its own word, 0 if it gave none
	reason       atomic.Uint32 // closeReason, once it is known
	inFlight     atomic.Int64  // requests that wait for a remote backend
	unsent       atomic.Int64  // bytes of replies that the peer has not taken
}

// replyWriter is what a session needs of its gnet.Conn.
type replyWriter interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written and not yet taken by the peer
}

func newSession(s *Server, conn replyWriter) *session {
	limits := netproto.Limits{MaxMessage: s.cfg.Limits.MaxMessage, MaxFrames: s.cfg.Limits.MaxFrames}
	ses := &session{server: s, conn: conn, meter: &s.noLoop, reader: netproto.NewReader(limits, s.service.Alignment())}
	ses.lastActive.Store(monotime.Now())
	if s.remote != nil {
		ses.flights = newFlights()
	}
	return ses
}

// flushAt is the size in bytes at which replies are sent before the turn is
// over, so that a burst of small requests with large replies stays bounded.
const flushAt = 64 << 10

// receive takes the bytes of one turn, all of them, and writes the replies. It
// reports why the connection must be closed, nil if it goes on.
func (s *session) receive(p []byte) error {
	begun := time.Now()
	s.turn, s.walks = begun, 0
	s.lastActive.Store(monotime.At(begun))
	s.out = bufpool.Get()
	before := s.reader.Copied()
	err := s.reader.Feed(p, s)
	s.server.copied.Add(int64(s.reader.Copied() - before))
	s.send(0)
	s.out.Release()
	s.out = nil
	if s.gone != nil {
		return s.gone
	}
	s.measure(begun)
	s.markMessage()
	s.markPeer()
	return err
}

// measure notes how long the lookups of a turn took, once for all of them: their
// replies went out together.
func (s *session) measure(begun time.Time) {
	if s.answered == 0 {
		return
	}
	took := int64(time.Since(begun))
	if s.early != 0 {
		s.meter.took(took+max(monotime.At(begun)-s.early, 0), 1)
		s.answered--
	}
	if s.answered > 0 {
		s.meter.took(took, s.answered)
	}
	s.answered, s.early = 0, 0
}

// noteLookup notes for measure that a lookup has been answered.
func (s *session) noteLookup(hashes int) {
	s.meter.asked(hashes)
	s.answered++
	if s.began != s.lastActive.Load() {
		s.early = s.began
	}
}

// noteBegan notes when the message that ends now began: only the first one that
// ends in a turn can have begun in an earlier one.
func (s *session) noteBegan() {
	s.began = s.lastActive.Load()
	if since := s.messageSince.Load(); since != 0 && !s.ended {
		s.began = since
	}
}

// markPeer notes for the sweeper what ZMTP has to say about the peer's time.
func (s *session) markPeer() {
	if ttl := int64(s.reader.TTL()); ttl != s.ttl.Load() {
		s.ttl.Store(ttl)
	}
	switch since := s.shakingSince.Load(); {
	case !s.reader.InHandshake():
		if since != 0 {
			s.shakingSince.Store(0)
		}
	case since == 0:
		s.shakingSince.Store(s.lastActive.Load())
	}
}

// markMessage notes for the sweeper whether a message is under way.
func (s *session) markMessage() {
	switch {
	case !s.reader.InMessage():
		s.messageSince.Store(0)
	case s.ended || s.messageSince.Load() == 0:
		s.messageSince.Store(s.lastActive.Load())
	}
	s.ended = false
}

// send writes the replies when there are more than so many bytes of them.
func (s *session) send(over int) {
	if s.gone != nil || len(s.out.B) <= over {
		return
	}
	if _, err := s.conn.Write(s.out.B); err != nil {
		s.gone = errGone // OnClose has already run
	} else if s.noteUnsent() > s.server.cfg.Limits.MaxUnsent {
		s.gone = errSlowReader
	}
	s.out.B = s.out.B[:0]
}

// noteUnsent notes, for those who drain the server, how much the peer has not
// taken.
func (s *session) noteUnsent() int {
	n := s.conn.OutboundBuffered()
	if int64(n) != s.unsent.Load() {
		s.unsent.Store(int64(n))
	}
	return n
}

// Reasons for which replies cannot be sent.
var (
	errGone       = errors.New("lookup: connection is gone")
	errSlowReader = errors.New("lookup: peer does not read its replies")
)

// abandon gives back what a request under way holds; the connection is gone.
func (s *session) abandon() {
	if s.query != nil {
		s.query.Release()
		s.query = nil
	}
}

// Begin implements netproto.Handler.
func (s *session) Begin(q *netproto.Request) bool {
	s.problem = nil
	if s.gone != nil {
		return false
	}
	if s.flights != nil {
		return s.beginRemote(q)
	}
	if q.Tag == netproto.TagLookup || q.Tag == netproto.TagExplain {
		return s.beginLookup(q)
	}
	if q.Tag == netproto.TagAnchors {
		return s.beginAnchors(q)
	}
	if s.change == nil {
		s.change = new(lookup.Change)
	}
	if q.Tag == netproto.TagStore {
		s.problem = s.server.service.BeginStore(s.change, q.Place, q.FirstChunk)
	} else {
		s.problem = s.server.service.BeginEvict(s.change, q.Place)
	}
	return s.problem == nil
}

// checkHashes refuses a lookup of too many hashes.
func (s *session) checkHashes(q *netproto.Request) error {
	n := max(q.NumHashes, int(q.Anchors.NumHashes))
	if most := s.server.cfg.Limits.MaxHashes; n > most {
		return fmt.Errorf("%w: %d, the limit is %d", ErrTooManyHashes, n, most)
	}
	return nil
}

func (s *session) beginAnchors(q *netproto.Request) bool {
	if s.problem = s.checkHashes(q); s.problem != nil {
		return false
	}
	if s.walks > 0 && q.Anchors.NumHashes > 0 && time.Since(s.turn) > s.server.walkPatience {
		s.problem = errTurnOver
		return false
	}
	s.walks++
	s.query = s.server.service.NewQuery()
	wanted, err := s.query.BeginAnchors(q)
	s.problem = err
	return wanted
}

func (s *session) beginLookup(q *netproto.Request) bool {
	if s.problem = s.checkHashes(q); s.problem != nil {
		return false
	}
	s.query = s.server.service.NewQuery()
	begin := s.query.Begin
	if q.Tag == netproto.TagExplain {
		begin = s.query.BeginExplain
	}
	wanted, err := begin(q.NumTokens, q.Unaligned, q.HashLen, q.NumHashes)
	s.problem = err
	return wanted
}

// Hashes implements netproto.Handler.
func (s *session) Hashes(q *netproto.Request, hashes []byte) bool {
	if s.flights != nil {
		return s.flights.current.add(hashes)
	}
	switch q.Tag {
	case netproto.TagLookup, netproto.TagExplain:
		return s.query.Add(hashes)
	case netproto.TagAnchors:
		return s.query.AddAnchors(hashes)
	case netproto.TagStore, netproto.TagEvict:
		s.problem = s.change.Add(hashes, q.HashLen)
	}
	return s.problem == nil
}

// End implements netproto.Handler.
func (s *session) End(q *netproto.Request) {
	s.noteBegan()
	s.ended = true
	if s.gone != nil {
		s.abandon()
		return
	}
	if s.flights != nil {
		s.endRemote(q)
		return
	}
	err := q.Problem
	if err == nil {
		err = s.problem
	}
	if err == nil {
		err = s.reply(q)
	}
	s.abandon()
	if err != nil {
		s.appendFailed(q.Envelope, err)
	}
	s.problem = nil
	s.send(flushAt)
}

// appendFailed appends and counts a 00.
func (s *session) appendFailed(envelope []byte, err error) {
	if errors.Is(err, lookup.ErrByHashes) {
		s.server.fallbacks.Add(1)
	} else {
		s.server.failed.Add(1)
		s.server.peers.requestFailed(s.peer, err)
	}
	s.out.B = netproto.AppendFailed(s.out.B, envelope, s.told(err))
}

// told returns the reason that goes with a 00: none to a ZMTP peer, which may be
// a client of the reference and takes replies of one frame only.
func (s *session) told(err error) string {
	if s.reader.ZMTP() {
		return ""
	}
	return err.Error()
}

// reply appends the reply to a request that can be served.
func (s *session) reply(q *netproto.Request) error {
	switch q.Tag {
	case netproto.TagLookup:
		hit, err := s.query.Finish()
		if err != nil {
			return err
		}
		s.out.B = netproto.AppendHit(s.out.B, q.Envelope, hit)
		s.noteLookup(q.NumHashes)
		return nil
	case netproto.TagExplain:
		e, err := s.query.Explanation()
		if err != nil {
			return err
		}
		return s.replyJSON(q, e)
	case netproto.TagAnchors:
		return s.replyAnchors(q)
	case netproto.TagStore, netproto.TagEvict:
		s.change.End(q.Before)
	case netproto.TagReset:
		if err := s.server.service.Reset(); err != nil {
			return err
		}
	case netproto.TagPing:
		s.out.B = netproto.AppendDone(s.out.B, q.Envelope, q.Echo)
		return nil
	case netproto.TagStat:
		return s.replyJSON(q, s.server.Stat())
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, nil)
	return nil
}

// replyJSON appends 01 and a document.
func (s *session) replyJSON(q *netproto.Request, v any) error {
	payload, err := encodeJSON(v)
	if err != nil {
		return err
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, payload)
	return nil
}

// Dropped implements netproto.Handler.
func (s *session) Dropped(*netproto.Request) {
	s.ended = true
	s.server.dropped.Add(1)
}

// Control implements netproto.Handler.
func (s *session) Control(out []byte) {
	s.ended = true // a message in this turn began behind it
	if len(out) == 0 {
		s.server.ignored.Add(1)
		return
	}
	if s.gone == nil {
		s.out.B = append(s.out.B, out...)
		s.send(flushAt)
	}
}
