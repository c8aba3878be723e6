package api

import "time"

// Instance is one run of a server, as the reply to a ping names it. The memory index of a new
// instance is empty. A reset does not make a new one.
type Instance struct {
	ID        string    `json:"instance"`   // random, 16 hexadecimal digits
	StartTime time.Time `json:"start_time"` // UTC
	Version   string    `json:"version"`    // of the server
	Protocol  int       `json:"protocol"`   // netproto.ProtocolVersion of the server
	Requests  []string  `json:"requests"`   // that the server knows
	Limits    Limits    `json:"limits"`     // of one connection
}
