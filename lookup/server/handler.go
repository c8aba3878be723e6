package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// requestHandler serves the requests of one session: memoryHandler over the memory index,
// remoteHandler over a backend. The session calls it on its event loop. A request is valid
// until end returns, hashes until the call returns.
type requestHandler interface {
	// begin starts a request that has hashes. It returns false if none of them is needed.
	begin(q *netproto.Request) bool
	// addHashes adds the next whole hashes. It returns how many bytes of them it has consumed, and
	// false if no further one is needed. It consumes fewer than all if the turn has no work left.
	addHashes(q *netproto.Request, hashes []byte) (consumed int, wanted bool)
	// end ends a request, also one without hashes, for which begin was not called. The reply
	// is appended now or in handleWake. It returns false if the turn has no work left: it is
	// then called again.
	end(q *netproto.Request) (done bool)
	// handleWake appends the replies that have become ready: see session.handleWake.
	handleWake()
	// releaseRequest releases the resources of the request being received.
	releaseRequest()
	// held returns the bytes of memory that unanswered requests hold, without hashes that wait
	// for a backend: SharedBackend counts those.
	held() int
	// close releases all resources. The connection is closed.
	close()
}

// checkHashes returns errTooManyHashes if a lookup has more hashes than MaxHashes, and
// errHashLen if they have not the length of the pool's.
func (s *session) checkHashes(q *netproto.Request) error {
	if most := s.server.limits.Load().MaxHashes; q.NumHashes > most {
		return fmt.Errorf("%w: %d, the limit is %d", errTooManyHashes, q.NumHashes, most)
	}
	if want := s.pool.hashLen; want != 0 && q.NumHashes > 0 && q.HashLen != want {
		return fmt.Errorf("%w: %d bytes, those of the pool have %d", errHashLen, q.HashLen, want)
	}
	return nil
}

// appendFailed appends and counts a 00 reply.
func (s *session) appendFailed(envelope []byte, err error) {
	s.workLeft -= s.server.refusalWork
	s.countFailed(err)
	s.out.B = netproto.AppendRefused(s.out.B, envelope, s.reasonFor(err), detailsOf(err))
}

// countFailed counts a request that failed, and has the log tell of it.
func (s *session) countFailed(err error) {
	s.metrics.failed.Add(1)
	add(&s.stats.refused, 1)
	refused := (*notAllowedError)(nil)
	switch {
	case errors.As(err, &refused):
		s.server.notAllowed[refused.tag].Add(1)
		s.server.peers.notAllowed(s.peer, refused.name, s.listener.addr, err)
	case !errors.Is(err, errNotAuthenticated): // which failAuth has logged
		s.server.peers.requestFailed(s.peer, err)
	}
}

// detailsOf returns the frame behind the reason of a 00 reply, in JSON: for a pool that differs
// the fields, for a prompt the parts that are not stored, for a request that the peer may not make
// an api.Refusal. Otherwise there is none.
func detailsOf(err error) []byte {
	var parts *api.PartsError
	var differs *differsError
	var refused *notAllowedError
	var details any
	switch {
	case errors.As(err, &parts):
		details = parts
	case errors.As(err, &differs):
		details = differs.differences
	case errors.As(err, &refused):
		details = api.Refusal{Refusal: api.RefusalNotAllowed, Request: refused.tag.String()}
	case errors.Is(err, errNotAuthenticated):
		details = api.Refusal{Refusal: api.RefusalNotAuthenticated, Request: netproto.TagAuth.String()}
	default:
		return nil
	}
	text, _ := json.Marshal(details) // numbers and texts
	return text
}

// answerSetup serves a pool or auth request, which decides about those behind it. It returns the last
// frame of the reply.
func (s *session) answerSetup(q *netproto.Request) ([]byte, error) {
	if q.Tag == netproto.TagAuth {
		return s.answerAuth(q)
	}
	return s.changePool(q.Description)
}

// refuseSetup returns the error of a pool or auth request that is not served. The connection then
// has no pool, or the credential with which it began: requests that are already on their way must
// not be answered about another pool, or by another credential.
func (s *session) refuseSetup(tag netproto.Tag, err error) error {
	switch {
	case err != nil && tag == netproto.TagPool:
		s.leavePool()
	case err != nil && tag == netproto.TagAuth:
		return s.failAuth(nameOf(s.credential), err)
	}
	return err
}

// appendHit appends the reply to a lookup.
func (s *session) appendHit(envelope []byte, hit api.Hit) {
	s.out.B = netproto.AppendTailHit(s.out.B, envelope, uint32(hit.Tokens), len(hit.TailBoundaries))
	for _, b := range hit.TailBoundaries {
		s.out.B = netproto.AppendTailBoundary(s.out.B, uint32(b.Group), uint32(b.Tokens))
	}
}

// appendFailedLookup appends and counts the reply to a lookup of a pool that failed. Clients of vLLM
// 0.29.0 and later log an error for a 00 reply, so they get a hit of 0. A raw client must be able to
// tell that it may not look up.
func (s *session) appendFailedLookup(p *pool, envelope []byte, err error) {
	if p == nil || !p.service.HasTailBoundaries() || !s.reader.ZMTP() && errors.As(err, new(*notAllowedError)) {
		s.appendFailed(envelope, err)
		return
	}
	s.workLeft -= s.server.refusalWork
	s.countFailed(err)
	s.appendHit(envelope, api.Hit{})
}

// reasonFor returns the reason frame of a 00 reply. ZMTP peers get none: vLLM's lookup
// client accepts replies of one frame only.
func (s *session) reasonFor(err error) string {
	if s.reader.ZMTP() {
		return ""
	}
	return err.Error()
}

// encodeJSON returns v in JSON as the last frame of a reply.
func encodeJSON(v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the reply: %w", err)
	}
	return netproto.AppendFrame(nil, payload, false), nil
}
