package events

import (
	"log/slog"
	"time"
)

// Config configures a Follower. Endpoints are tcp://host:port or ipc://path, as ZeroMQ writes
// them.
type Config struct {
	Name    string // of the source
	Connect string // endpoint of a publisher that binds; or
	Bind    string // endpoint on which a publisher that connects is awaited
	Replay  string // endpoint of its replay socket, empty if there is none
	Topic   string // prefix of the topics that are subscribed to
	// ExactCopies counts the copies of first blocks too. That is right only if no request
	// asks the engine for full reports (vLLM: kv_cache_report_mode).
	ExactCopies bool
	MaxPayload  int           // bytes of one payload; 0: DefaultMaxPayload
	MaxBlocks   int           // blocks that the source may hold; 0: DefaultMaxBlocks
	Timeout     time.Duration // of a connection that says nothing, and of a replay; 0: DefaultTimeout
	Logger      *slog.Logger  // nil discards
}

const (
	DefaultMaxPayload = 64 << 20
	DefaultMaxBlocks  = 16 << 20
	DefaultTimeout    = 10 * time.Second
)

// State is what a Follower does.
type State string

const (
	StateConnecting State = "connecting"
	StateReplaying  State = "replaying"
	StateLive       State = "live"
)

// Status tells about a source. Counters only grow.
type Status struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	State    State  `json:"state"`
	Stale    bool   `json:"stale"`
	Complete bool   `json:"complete"`
	Blocks   int64  `json:"blocks"` // held now
	NextSeq  uint64 `json:"next_sequence"`

	Batches  int64 `json:"batches"`
	Stored   int64 `json:"stored"`  // blocks
	Removed  int64 `json:"removed"` // blocks
	Cleared  int64 `json:"cleared"` // events
	Hints    int64 `json:"hints"`   // blocks of stores that no event removes
	Unknown  int64 `json:"unknown"` // events
	Gaps     int64 `json:"gaps"`
	Holes    int64 `json:"holes"`
	Replays  int64 `json:"replays"` // asked for
	Restarts int64 `json:"restarts"`
	Connects int64 `json:"connects"`
	Errors   int64 `json:"errors"`

	LastEvent time.Time `json:"last_event,omitzero"` // when the last batch arrived
	LastError string    `json:"last_error,omitempty"`
}

// Follower follows one source. Safe for concurrent use.
type Follower struct{}

// NewFollower checks cfg. Start begins to follow.
func NewFollower(cfg Config, holder Holder) (*Follower, error) { return &Follower{}, nil }

// Start follows the source in the background until Close.
func (f *Follower) Start() error { return nil }

// Close stops and waits for all goroutines. The Holder is not called any more; it was told that
// the source is stale.
func (f *Follower) Close() {}

// Status returns the state of the source.
func (f *Follower) Status() Status { return Status{} }
