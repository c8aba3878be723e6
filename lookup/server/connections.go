package server

import "time"

// Connection is what a server tells of one open connection. Counters count since it was opened.
type Connection struct {
	Peer       string    `json:"peer"`     // address of the peer; of a unix socket its process id, if known
	Listen     string    `json:"listen"`   // address that it was accepted at
	Protocol   string    `json:"protocol"` // raw, zmtp, or empty if nothing has arrived yet
	TLS        bool      `json:"tls"`
	Credential string    `json:"credential,omitempty"` // name of its credential, if it has one
	Pool       string    `json:"pool"`                 // name of its pool, "" for the server's own and for none
	Since      time.Time `json:"since"`
	IdleMS     int64     `json:"idle_ms"`  // milliseconds since the last byte arrived
	Requests   int64     `json:"requests"` // answered, those refused included
	Lookups    int64     `json:"lookups"`  // of those: answered with a hit
	Refused    int64     `json:"refused"`  // of those: answered 00
	InBytes    int64     `json:"in_bytes"`
	OutBytes   int64     `json:"out_bytes"`
	Unsent     int64     `json:"unsent_bytes"` // replies that the kernel has not accepted yet
	InFlight   int64     `json:"in_flight"`    // requests that wait for a backend
}

// Connections returns how many connections are open, and at most limit of them: those with the most
// requests first. The counters of one are read one by one, while it goes on. The caller owns the result.
func (s *Server) Connections(limit int) (total int, list []Connection) { return 0, nil }
