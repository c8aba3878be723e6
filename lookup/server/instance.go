package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// newInstance returns the instance of a server that is made now.
func newInstance(version string) api.Instance {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return api.Instance{
		ID: hex.EncodeToString(id[:]), StartTime: time.Now().UTC().Truncate(time.Millisecond),
		Version: version, Protocol: netproto.ProtocolVersion, Requests: RequestTags()[netproto.TagUnknown+1:],
	}
}

// jobsPerWorker is how many jobs in flight a client is told to have for each worker that reads a store.
const jobsPerWorker = 4

// identity returns the instance with the limits in effect.
func (s *shared) identity() api.Instance {
	of := s.limits.Load()
	i, inFlight := s.instance, of.MaxInFlight
	if s.backend != nil { // more would wait for so long that their time is up
		inFlight = min(inFlight, jobsPerWorker*s.backend.Config().Workers)
	}
	i.Limits = api.Limits{
		MaxMessage: of.MaxMessage, MaxFrames: netproto.DefaultMaxFrames, MaxHashes: of.MaxHashes,
		MaxInFlight: inFlight, MaxInFlightBytes: maxInFlightBytes,
	}
	return i
}

// pingReply returns the frames after the 01 of the reply to a ping: those of the ping, or the
// instance if it has none. They are borrowed. p is the connection's pool, nil if it has none.
func (s *shared) pingReply(q *netproto.Request, p *pool) []byte {
	if len(q.Echo) > 0 {
		return q.Echo
	}
	return s.pongFor(p)
}

// pongFor returns the frame for connections of a pool, nil for those without one. It is made again when something has
// changed.
func (s *shared) pongFor(p *pool) []byte {
	cache, alignment := &s.pong, int64(0)
	if p != nil {
		cache, alignment = &p.pong, p.service.PromptAlignment()
	}
	draining, limits := s.phase.reached(phaseDraining), s.limits.Load()
	if made := cache.Load(); made != nil && made.draining == draining && made.limits == limits {
		return made.frame
	}
	i := s.identity()
	i.PromptAlignment, i.Draining = alignment, draining
	text, _ := json.Marshal(i)                                              // numbers and texts
	made := &pong{draining, limits, netproto.AppendFrame(nil, text, false)} // two event loops may both make it
	cache.Store(made)
	return made.frame
}

// echoBytes bounds the reply to a ping.
func echoBytes(j *job) int { return max(len(j.q.Echo), len(j.session.shared.pongFor(nil))+20) }

func applyPing(s *session, j *job) error {
	j.done(s.shared.pingReply(&j.q, j.pool))
	return nil
}
