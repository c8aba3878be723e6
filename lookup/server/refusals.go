package server

import (
	"net"
	"strings"
	"sync"
	"time"
)

// LoggedRefusal is a line of the log about requests or connections that the server has refused.
type LoggedRefusal struct {
	Time       time.Time `json:"time"` // UTC
	Peer       string    `json:"peer,omitempty"`
	Event      string    `json:"event"`            // as in the log: connection closed, request refused, request not allowed, authentication failed, or more …
	Reason     string    `json:"reason,omitempty"` // of a closed connection: one of CloseReasons
	Credential string    `json:"credential,omitempty"`
	Error      string    `json:"error,omitempty"` // at most 512 bytes; may hold text that came from the peer
	// Suppressed is how many of the same event and reason came before it and have no line.
	Suppressed int64 `json:"suppressed,omitempty"`
}

// Refusals returns the last lines of the log about refusals, at most 50, the newest first. Of each event and
// reason there is one a second. Connections that ended in normal operation are no refusals. The caller owns
// the result.
func (s *Server) Refusals() []LoggedRefusal { return s.peers.refusals.list() }

const (
	// maxRefusals is how many refusals are kept: more than a person reads.
	maxRefusals = 50
	// maxRefusalText bounds the bytes of each text of a refusal.
	maxRefusalText = 512
)

// refusals holds the last refusals. Safe for concurrent use. Event loops may wait for list, which holds mu
// for about a microsecond.
type refusals struct {
	mu    sync.Mutex
	ring  [maxRefusals]LoggedRefusal
	added int // since the start
}

// add adds a refusal and sets its Time, Peer and Error. peer and err may be nil.
func (r *refusals) add(of LoggedRefusal, peer net.Addr, err error) {
	of.Time, of.Credential = time.Now().UTC(), bounded(of.Credential)
	if peer != nil {
		of.Peer = bounded(peer.String())
	}
	if err != nil {
		of.Error = bounded(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.added%maxRefusals] = of
	r.added++
}

// list returns the refusals, the newest first.
func (r *refusals) list() []LoggedRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]LoggedRefusal, 0, maxRefusals)
	for i := r.added - 1; i >= max(r.added-maxRefusals, 0); i-- {
		list = append(list, r.ring[i%maxRefusals])
	}
	return list
}

// bounded returns the first maxRefusalText bytes of a text, without a part of a character.
func bounded(text string) string {
	if len(text) <= maxRefusalText {
		return text
	}
	return strings.ToValidUTF8(text[:maxRefusalText-len("…")], "") + "…"
}
