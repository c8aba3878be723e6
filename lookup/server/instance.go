package server

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// instance is the instance of a server, and the frame that names it.
type instance struct {
	api.Instance
	frame []byte // in JSON, as the last frame of a reply
}

// newInstance returns the instance of a server that is made now.
func newInstance(version string) (i instance, err error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	i.Instance = api.Instance{
		ID: hex.EncodeToString(id[:]), StartTime: time.Now().UTC().Truncate(time.Millisecond),
		Version: version, Protocol: netproto.ProtocolVersion,
	}
	i.frame, err = encodeJSON(i.Instance)
	return i, err
}

// Instance returns the instance that pings and stats name. Each Server is another one.
func (s *Server) Instance() api.Instance { return s.instance.Instance }

// pong returns the frames behind the 01 of the reply to a ping: those of the ping, or the
// instance if it has none. They are borrowed.
func (s *Server) pong(q *netproto.Request) []byte {
	if len(q.Echo) > 0 {
		return q.Echo
	}
	return s.instance.frame
}
