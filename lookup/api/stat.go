package api

import "time"

// MaxPoolNames bounds Stat.PoolNames.
const MaxPoolNames = 100

// Stat is the counters of a service and its server. It is the reply to stat, in JSON.
// Counters count since the start. An entry is one distinct hash of one length, however many
// ranks hold it.
type Stat struct {
	Version string `json:"version"`
	// Instance is the ID of the server's Instance, StartTime when that began, in UTC. Both are
	// missing without a server.
	Instance  string    `json:"instance,omitempty"`
	StartTime time.Time `json:"start_time,omitzero"`
	Pool      string    `json:"pool,omitempty"` // name of the pool that the counters are about, if it has one
	Pools     int64     `json:"pools"`          // that the server serves now
	// PoolNames are the names of those that have one, at most MaxPoolNames.
	PoolNames  []string `json:"pool_names,omitempty"`
	VLLM       string   `json:"vllm"` // the releases that the pool fits, separated by commas
	Kernel     string   `json:"kernel"`
	Backend    string   `json:"backend"`
	Entries    int64    `json:"entries"`
	MaxEntries int64    `json:"max_entries"`
	Bytes      int64    `json:"bytes"`
	MaxBytes   int64    `json:"max_bytes"`
	Lookups    int64    `json:"lookups"` // answered with a hit, of 0 tokens included
	Stored     int64    `json:"stored"`  // keys added to a group rank
	Evicted    int64    `json:"evicted"` // entries removed, to free memory or on request
	// StoresRefused is stores and evicts refused: too many coverage classes, or hashes of another length.
	StoresRefused int64 `json:"stores_refused"`

	// PoolTokens is nil if the server does not account for tokens.
	*PoolTokens

	// Over a remote backend:

	BackendErrors     int64  `json:"backend_errors"`          // calls that failed
	BackendTimeouts   int64  `json:"backend_timeouts"`        // calls, or waits for one, past the deadline
	BackendRejected   int64  `json:"backend_rejected"`        // requests ended without a call of the backend, see BackendState and docs/monitoring.md
	BackendRounds     int64  `json:"backend_rounds"`          // calls that lookups and explanations made; one may take several requests
	BackendKeys       int64  `json:"backend_keys"`            // keys that they asked for
	RememberedLookups int64  `json:"remembered_lookups"`      // lookups answered without a call, from what calls before had found
	RenewedKeys       int64  `json:"renewed_keys"`            // keys before the start of lookups that were asked for to keep them
	RenewalsDropped   int64  `json:"renewals_dropped"`        // requests to keep such keys that were not done, or not to their end
	BackendState      string `json:"backend_state,omitempty"` // of the breaker: closed (normal), open or half-open
	BackendError      string `json:"backend_error,omitempty"` // why the latest call failed, empty if it did not

	// Of a server; 0 without one:

	Connections     int64 `json:"connections"`      // open
	MaxConnections  int64 `json:"max_connections"`  // bound on Connections, as lowered by the limit of open files
	AcceptErrors    int64 `json:"accept_errors"`    // connections not accepted, or delayed, without descriptors or memory
	InFlight        int64 `json:"in_flight"`        // requests that wait for a worker or its answer
	Memory          int64 `json:"memory"`           // bytes of unread replies and unfinished requests
	MaxMemory       int64 `json:"max_memory"`       // bound on Memory
	MemoryRefused   int64 `json:"memory_refused"`   // requests refused and connections closed because of it
	RequestsRefused int64 `json:"requests_refused"` // requests refused
	Busy            int64 `json:"busy"`             // of those: because there was no room for them
	AfterFIN        int64 `json:"after_fin"`        // requests answered after the peer's FIN: it may not have waited
	// Closed counts closed connections by reason; server.CloseReasons lists the keys.
	Closed map[string]int64 `json:"closed"`
	// Requests counts answered requests, those refused included, by request, "unknown" for requests that are
	// none; server.RequestTags lists the keys.
	Requests map[string]int64 `json:"requests,omitempty"`
	// NotAllowed counts requests without permission by request; server.RequestNames lists the keys.
	NotAllowed   map[string]int64 `json:"not_allowed,omitempty"`
	AuthFailures int64            `json:"auth_failures"` // auth requests and ZMTP PLAIN handshakes that failed
}
