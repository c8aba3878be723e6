package events

import "time"

// State is what a Follower does.
type State string

const (
	StateConnecting State = "connecting" // or waiting before the next attempt
	StateReplaying  State = "replaying"
	StateLive       State = "live"
)

// Status is the state of a source, and counters since its Follower was made.
type Status struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	State    State  `json:"state"`
	Stale    bool   `json:"stale"`
	Complete bool   `json:"complete"`
	Blocks   int64  `json:"blocks"` // held now, as Holder.Len says
	NextSeq  uint64 `json:"next_sequence"`

	// BatchRank is the data-parallel rank that the last batch has, nil without one.
	BatchRank *int `json:"batch_rank,omitempty"`

	Batches  int64 `json:"batches"`
	Stored   int64 `json:"stored"`  // blocks
	Removed  int64 `json:"removed"` // blocks
	Cleared  int64 `json:"cleared"` // events
	Unheld   int64 `json:"unheld"`  // blocks of tiers from which no event removes any
	Dropped  int64 `json:"dropped"` // blocks that the Holder dropped by itself
	Unknown  int64 `json:"unknown"` // events
	Gaps     int64 `json:"gaps"`
	Lost     int64 `json:"lost"`
	Replays  int64 `json:"replays"` // asked for: after a gap, and after a connection that had to be made anew
	Checks   int64 `json:"checks"`  // replays asked for after silence: does the publisher live, was a batch missed?
	Restarts int64 `json:"restarts"`
	Connects int64 `json:"connects"`
	Errors   int64 `json:"errors"`

	LastEvent time.Time `json:"last_event,omitzero"`  // when the last batch arrived that was new
	LastError string    `json:"last_error,omitempty"` // "" once the source is complete, and not stale
	// LastErrorTime is when LastError occurred.
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
}
