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
	// PromptAlignment, in tokens, is what the tokens of a lookup are multiples of in the connection's pool: 1 from vLLM
	// 0.27.0 on. Missing if the connection has no pool.
	PromptAlignment int64 `json:"prompt_alignment,omitempty"`
	// Draining says that the server is about to stop: whoever knows another one should ask that.
	Draining bool `json:"draining,omitempty"`
}
