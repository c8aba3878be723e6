package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// requestHandler serves the requests of one session, which calls it on its event loop:
// memoryHandler over the memory index, remoteHandler over a backend. Requests are valid
// until end returns, hashes only during the call.
type requestHandler interface {
	// begin starts a request that has hashes; false says that it needs none of them.
	begin(q *netproto.Request) bool
	// add takes the next whole hashes; false says that no further one is needed.
	add(q *netproto.Request, hashes []byte) bool
	// end ends a request, with or without begin before, and appends its reply, now or
	// in resume.
	end(q *netproto.Request)
	// resume appends the replies that have become ready: see session.resume.
	resume()
	// discard gives back what the request being received holds.
	discard()
	// close gives back everything. The connection is gone.
	close()
}

// checkHashes refuses a lookup of too many hashes.
func (s *Server) checkHashes(q *netproto.Request) error {
	n := max(q.NumHashes, int(q.Anchors.NumHashes))
	if most := s.cfg.Limits.MaxHashes; n > most {
		return fmt.Errorf("%w: %d, the limit is %d", ErrTooManyHashes, n, most)
	}
	return nil
}

// appendFailed appends and counts a 00.
func (s *session) appendFailed(envelope []byte, err error) {
	if errors.Is(err, lookup.ErrByHashes) {
		s.server.fallbacks.Add(1)
	} else {
		s.server.failed.Add(1)
		s.server.peers.requestFailed(s.peer, err)
	}
	s.out.B = netproto.AppendFailed(s.out.B, envelope, s.reasonFor(err))
}

// reasonFor returns the reason that goes with a 00: none to a ZMTP peer, which may be a
// client of the reference and takes replies of one frame only.
func (s *session) reasonFor(err error) string {
	if s.reader.ZMTP() {
		return ""
	}
	return err.Error()
}

// appendAnchorsParams appends the reply to a request for the parameters of lookups by
// anchors: 0 and 0 where these are not served.
func (s *session) appendAnchorsParams(envelope []byte) {
	stride, unit := s.server.service.AnchorsParams()
	if stride == 0 {
		s.server.fallbacks.Add(1)
	}
	s.out.B = netproto.AppendAnchorsReply(s.out.B, envelope, netproto.AnchorsParams, stride, unit)
}

// encodeJSON returns a document as a reply's last frame.
func encodeJSON(v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the reply: %w", err)
	}
	return netproto.AppendFrame(nil, payload, false), nil
}
