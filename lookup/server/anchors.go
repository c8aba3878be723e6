package server

import (
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// errTurnOver refuses a request by anchors because of walkPatience.
var errTurnOver = fmt.Errorf("too many requests by anchors at a time: %w", lookup.ErrByHashes)

// walkPatience is how long a connection's turn may have lasted for a further
// request by anchors to be served in it. A hundred bytes of such a request may walk
// along a chain in a hundred thousand pieces, which takes milliseconds, and a turn
// has room for a thousand of them; a lookup takes time by the bytes it sends.
const walkPatience = 5 * time.Millisecond

// appendAnchorsParams appends the reply to a request for the parameters: 0 and 0 where
// anchors are not served.
func (s *session) appendAnchorsParams(envelope []byte) {
	stride, unit := s.server.service.AnchorParams()
	if stride == 0 {
		s.server.fallbacks.Add(1)
	}
	s.out.B = netproto.AppendAnchorsReply(s.out.B, envelope, netproto.AnchorsParams, stride, unit)
}

// replyAnchors appends the reply to a request by anchors.
func (s *session) replyAnchors(q *netproto.Request) error {
	if q.Anchors.NumHashes == 0 {
		s.appendAnchorsParams(q.Envelope)
		return nil
	}
	a, err := s.query.FinishAnchors()
	switch {
	case err != nil:
		return err
	case !a.Determined:
		s.server.undetermined.Add(1)
		s.out.B = netproto.AppendAnchorsReply(s.out.B, q.Envelope, netproto.AnchorsMore, a.Known, a.Said, a.End)
		return nil
	}
	s.server.anchored.Add(1)
	s.out.B = netproto.AppendAnchorsReply(s.out.B, q.Envelope, netproto.AnchorsHit, a.Hit)
	s.noteLookup(int(q.Anchors.NumHashes))
	return nil
}
