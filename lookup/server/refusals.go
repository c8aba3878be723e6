package server

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Refusal is a request or connection that the server has refused.
type Refusal struct {
	Time       time.Time `json:"time"` // UTC
	Peer       string    `json:"peer,omitempty"`
	Event      string    `json:"event"`            // as in the log: connection closed, request refused, request not allowed, authentication failed
	Reason     string    `json:"reason,omitempty"` // of a closed connection: one of CloseReasons
	Credential string    `json:"credential,omitempty"`
	Error      string    `json:"error,omitempty"` // at most 512 bytes; may hold text that came from the peer
	// Suppressed is how many more of the same event and reason have followed, up to the next listed one.
	Suppressed int64 `json:"suppressed,omitempty"`
}

// Refusals returns the last refusals, at most 50, the newest first. Of each event and reason one is listed
// every 100 ms. Connections that ended in normal operation are no refusals. The caller owns the result.
func (s *Server) Refusals() []Refusal { return s.peers.refusals.list() }

const (
	// maxRefusals is how many refusals are kept: more than a person reads.
	maxRefusals = 50
	// maxRefusalText bounds the bytes of each text of a refusal.
	maxRefusalText = 512
	// refusalInterval is the least time between two refusals of one event and reason, so that a flood of them
	// costs little more than counting them.
	refusalInterval = 100 * time.Millisecond
)

// refusals holds the last refusals. Safe for concurrent use. Event loops may wait for list, which holds mu
// for about a microsecond.
type refusals struct {
	mu    sync.Mutex
	ring  [maxRefusals]*listedRefusal
	added int // since the start
}

// listedRefusal is a Refusal whose Suppressed grows while it is the last one of its event and reason.
type listedRefusal struct {
	Refusal
	suppressed atomic.Int64
}

// add adds a refusal and sets its Time, Peer and Error. peer and err may be nil.
func (r *refusals) add(of Refusal, peer net.Addr, err error) *listedRefusal {
	of.Time, of.Credential = time.Now().UTC(), bounded(of.Credential)
	if peer != nil {
		of.Peer = bounded(peer.String())
	}
	if err != nil {
		of.Error = bounded(err.Error())
	}
	added := &listedRefusal{Refusal: of}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.added%maxRefusals] = added
	r.added++
	return added
}

// list returns the refusals, the newest first.
func (r *refusals) list() []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Refusal, 0, maxRefusals)
	for i := r.added - 1; i >= max(r.added-maxRefusals, 0); i-- {
		of := r.ring[i%maxRefusals]
		list = append(list, of.Refusal)
		list[len(list)-1].Suppressed = of.suppressed.Load()
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
