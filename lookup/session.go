package lookup

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// session is one connection: the reader of its requests and what the request
// under way needs. It implements netproto.Handler and belongs to its event loop;
// the atomic fields are for the sweeper of timeouts.
type session struct {
	server *Server
	reader *netproto.Reader

	query   *query // the lookup under way, nil otherwise
	place   int    // of the store or evict under way
	writer  *index.Writer
	problem error // why the request under way cannot be served

	conn  replyWriter
	out   *bufpool.Buffer // replies of this turn
	gone  error           // why nothing more can be sent
	ended bool            // a message ended in this turn

	messageSince atomic.Int64  // Unix nanoseconds when the message under way began, 0 if none
	lastActive   atomic.Int64  // Unix nanoseconds of the last byte
	reason       atomic.Uint32 // closeReason, once it is known
}

// replyWriter is what a session needs of its gnet.Conn.
type replyWriter interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written and not yet taken by the peer
}

func newSession(s *Server, conn replyWriter) *session {
	limits := netproto.Limits{MaxMessage: s.cfg.Limits.MaxMessage, MaxFrames: s.cfg.Limits.MaxFrames}
	ses := &session{server: s, conn: conn, reader: netproto.NewReader(limits, s.service.Alignment())}
	ses.lastActive.Store(time.Now().UnixNano())
	return ses
}

// flushAt is the size in bytes at which replies are sent before the turn is
// over, so that a burst of small requests with large replies stays bounded.
const flushAt = 64 << 10

// receive takes the bytes of one turn, all of them, and writes the replies. It
// reports why the connection must be closed, nil if it goes on.
func (s *session) receive(p []byte) error {
	s.lastActive.Store(time.Now().UnixNano())
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
	s.markMessage()
	return err
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
	} else if s.conn.OutboundBuffered() > s.server.cfg.Limits.MaxUnsent {
		s.gone = errSlowReader
	}
	s.out.B = s.out.B[:0]
}

// Reasons for which replies cannot be sent.
var (
	errGone       = errors.New("lookup: connection is gone")
	errSlowReader = errors.New("lookup: peer does not read its replies")
)

// abandon gives back what a request under way holds; the connection is gone.
func (s *session) abandon() {
	if s.query != nil {
		s.query.release()
		s.query = nil
	}
}

// Begin implements netproto.Handler.
func (s *session) Begin(q *netproto.Request) bool {
	s.problem = nil
	if s.gone != nil {
		return false
	}
	if q.Tag == netproto.TagLookup || q.Tag == netproto.TagExplain {
		return s.beginLookup(q)
	}
	var ok bool
	if s.place, ok = s.server.service.places.number(q.Place); !ok {
		s.problem = fmt.Errorf("%w: group %d, tp_rank %d, pp_rank %d, pcp_rank %d", ErrPlace,
			q.Place.Group, q.Place.TPRank, q.Place.PPRank, q.Place.PCPRank)
		return false
	}
	if s.writer == nil {
		s.writer = new(index.Writer)
	}
	*s.writer = index.Writer{}
	return true
}

func (s *session) beginLookup(q *netproto.Request) bool {
	if most := s.server.cfg.Limits.MaxHashes; q.NumHashes > most {
		s.problem = fmt.Errorf("%w: %d, the limit is %d", ErrTooManyHashes, q.NumHashes, most)
		return false
	}
	s.query = s.server.service.queries.Get().(*query)
	s.query.explain = q.Tag == netproto.TagExplain
	s.problem = s.query.begin(q.NumTokens, q.Unaligned, q.HashLen, q.NumHashes)
	return s.problem == nil && s.query.asked
}

// Hashes implements netproto.Handler.
func (s *session) Hashes(q *netproto.Request, hashes []byte) bool {
	switch q.Tag {
	case netproto.TagLookup, netproto.TagExplain:
		return s.query.add(hashes)
	case netproto.TagStore:
		s.problem = s.server.service.index.Store(s.writer, s.place, hashes, q.HashLen)
	case netproto.TagEvict:
		_, s.problem = s.server.service.index.Evict(s.place, hashes, q.HashLen)
	}
	return s.problem == nil
}

// End implements netproto.Handler.
func (s *session) End(q *netproto.Request) {
	s.ended = true
	if s.gone != nil {
		s.abandon()
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
		s.server.failed.Add(1)
		s.out.B = netproto.AppendFailed(s.out.B, q.Envelope, err.Error())
	}
	s.problem = nil
	s.send(flushAt)
}

// reply appends the reply to a request that can be served.
func (s *session) reply(q *netproto.Request) error {
	switch q.Tag {
	case netproto.TagLookup:
		hit, err := s.query.finish()
		if err != nil {
			return err
		}
		s.out.B = netproto.AppendHit(s.out.B, q.Envelope, hit)
		return nil
	case netproto.TagExplain:
		e, err := s.query.explanation()
		if err != nil {
			return err
		}
		return s.replyJSON(q, e)
	case netproto.TagReset:
		s.server.service.Reset()
	case netproto.TagPing:
		s.out.B = netproto.AppendDone(s.out.B, q.Envelope, q.Echo)
		return nil
	case netproto.TagStat:
		return s.replyJSON(q, s.server.stat())
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, nil)
	return nil
}

// replyJSON appends 01 and a document.
func (s *session) replyJSON(q *netproto.Request, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the reply: %w", err)
	}
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, netproto.AppendFrame(nil, payload, false))
	return nil
}

// Dropped implements netproto.Handler.
func (s *session) Dropped(*netproto.Request) {
	s.ended = true
	s.server.dropped.Add(1)
}
