package server

import "time"

// Refusal is a request or connection that the server has refused.
type Refusal struct {
	Time       time.Time `json:"time"`
	Peer       string    `json:"peer,omitempty"`
	Event      string    `json:"event"`            // as in the log: connection closed, request refused, request not allowed, authentication failed
	Reason     string    `json:"reason,omitempty"` // of a closed connection: one of CloseReasons
	Credential string    `json:"credential,omitempty"`
	Error      string    `json:"error,omitempty"` // may hold text that came from the peer
	// Suppressed is how many more of the same event and reason there were since the one before, which are
	// not listed.
	Suppressed int64 `json:"suppressed,omitempty"`
}

// Refusals returns the last refusals, at most 50, the newest first. The caller owns the result.
func (s *Server) Refusals() []Refusal { return nil }
