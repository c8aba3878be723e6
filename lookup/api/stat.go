package api

// Stat is what the stat request reports. Counters count since the start. An entry
// is one distinct hash of one length, however many ranks hold it.
type Stat struct {
	Version    string `json:"version"`
	Revision   string `json:"revision"`
	Kernel     string `json:"kernel"`
	Backend    string `json:"backend"`
	Entries    int64  `json:"entries"`
	MaxEntries int64  `json:"max_entries"`
	Bytes      int64  `json:"bytes"`
	MaxBytes   int64  `json:"max_bytes"`
	Lookups    int64  `json:"lookups"`     // answered with a hit, 0 included
	HitTokens  int64  `json:"hit_tokens"`  // sum of the hits
	MissTokens int64  `json:"miss_tokens"` // asked, covered by hashes, and not hit
	Stored     int64  `json:"stored"`      // keys added to a group rank
	Evicted    int64  `json:"evicted"`     // entries removed, for room or on request
	Refused    int64  `json:"refused"`     // stores refused for want of coverage classes

	// Over a remote backend:

	BackendErrors   int64  `json:"backend_errors"`          // calls that failed
	BackendTimeouts int64  `json:"backend_timeouts"`        // calls, or waits for one, past the deadline
	BackendRejected int64  `json:"backend_rejected"`        // requests that the backend was not asked for, see BackendState and operations.md
	BackendShared   int64  `json:"backend_shared"`          // lookups answered by the answer to an equal one under way
	BackendState    string `json:"backend_state,omitempty"` // of the breaker: closed when all is well, open, half-open

	// Of a server only:

	Connections    int64 `json:"connections"`     // open now
	MaxConnections int64 `json:"max_connections"` // their bound, after the limit of open files
	AcceptErrors   int64 `json:"accept_errors"`   // connections not accepted, or late, for want of descriptors or memory
	InFlight       int64 `json:"in_flight"`       // requests that wait for a remote backend
	Failed         int64 `json:"failed"`          // requests answered 00, but for those that AnchoredFallbacks counts
	Dropped        int64 `json:"dropped"`         // messages without a delimiter
	// CommandsIgnored counts ZMTP commands that mean nothing to a REP peer.
	CommandsIgnored int64 `json:"commands_ignored"`
	Anchored        int64 `json:"anchored"` // lookups answered by anchors
	// AnchoredUndetermined counts requests by anchors that took another one, or all hashes.
	AnchoredUndetermined int64 `json:"anchored_undetermined"`
	// AnchoredFallbacks counts requests by anchors answered "look up by all hashes", and
	// requests for the parameters answered 0 and 0, which hitline's clients send once a
	// connection.
	AnchoredFallbacks int64 `json:"anchored_fallbacks"`
	BytesCopied       int64 `json:"bytes_copied"` // of hashes: those cut between two reads, and all on their way to a remote backend
	// Closed counts connections by the reason of their end.
	Closed map[string]int64 `json:"closed"`
}
