package server

import (
	"net"
	"strings"
	"sync"
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
	ring  [maxRefusals]numberedRefusal
	added int // since the start
}

// numberedRefusal is a Refusal whose Suppressed list computes.
type numberedRefusal struct {
	Refusal
	limit  *logLimit // of its event and reason
	number int64     // of logLimit.events
}

// add adds a refusal and sets its Time, Peer and Error. peer and err may be nil.
func (r *refusals) add(of Refusal, peer net.Addr, err error, limit *logLimit, number int64) {
	of.Time, of.Credential = time.Now().UTC(), bounded(of.Credential)
	if peer != nil {
		of.Peer = bounded(peer.String())
	}
	if err != nil {
		of.Error = bounded(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.added%maxRefusals] = numberedRefusal{of, limit, number}
	r.added++
}

// list returns the refusals, the newest first.
func (r *refusals) list() []Refusal {
	newest := r.newestFirst()
	list := make([]Refusal, len(newest))
	next := map[*logLimit]int64{} // the number of the next event that is listed
	for i, of := range newest {
		following, ok := next[of.limit]
		if !ok {
			following = of.limit.events.Load() + 1
		}
		list[i] = of.Refusal
		list[i].Suppressed = max(following-of.number-1, 0)
		next[of.limit] = of.number
	}
	return list
}

// newestFirst returns a copy of the refusals.
func (r *refusals) newestFirst() []numberedRefusal {
	list := make([]numberedRefusal, 0, maxRefusals)
	r.mu.Lock()
	defer r.mu.Unlock()
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
