package client

import (
	"encoding/json"
	"errors"
	"time"
)

// Services is the state of a server's models and sources, as far as the client may see it.
type Services struct {
	Time    time.Time       `json:"time"` // of the server
	Models  []Model         `json:"models"`
	Sources []Source        `json:"sources"`
	JSON    json.RawMessage `json:"-"` // the whole reply
}

// Model is a model, with the holders of its blocks.
type Model struct {
	Name         string   `json:"model"`
	Tenant       string   `json:"tenant_id"`
	BlockSize    int      `json:"block_size"`     // tokens
	Configured   bool     `json:"configured"`     // otherwise it goes with its last source
	Pool         *string  `json:"pool,omitempty"` // whose store Query.Loadable asks, "" for the server's own; nil: none
	HashesDiffer bool     `json:"hashes_differ"`  // live engines hash token ids otherwise than the server, and none is known to hash so
	Blocks       int64    `json:"blocks"`         // different ones, equal ones of several groups once
	Entries      int64    `json:"entries"`        // blocks of each holder, group and tier, and predicted ones
	Sets         int64    `json:"sets"`           // different sets of holders
	Bytes        int64    `json:"bytes"`          // of memory
	MaxBytes     int64    `json:"max_bytes"`
	Holders      []Holder `json:"holders"`
}

// Holder is a data-parallel rank of an engine that has blocks, with a source or by predictions alone.
type Holder struct {
	Engine string `json:"instance_id"`
	Rank   int    `json:"dp_rank"`
	Stale  bool   `json:"stale"`  // it counts for nothing but what is predicted
	Blocks int64  `json:"blocks"` // in all groups and tiers, and predicted ones
}

// Source is a publisher of KV events that is followed. Its counters begin when it is first followed.
type Source struct {
	Name       string `json:"name"`     // empty for all but administrators if the source has none of its own
	Endpoint   string `json:"endpoint"` // empty for all but administrators
	Model      string `json:"model"`
	Tenant     string `json:"tenant_id"`
	Engine     string `json:"instance_id"`
	Rank       int    `json:"dp_rank"`
	Registered bool   `json:"registered"` // by a client; otherwise it is one of the configuration

	State        string `json:"state"`         // connecting, replaying, live
	Stale        bool   `json:"stale"`         // it counts for nothing but what is predicted
	Complete     bool   `json:"complete"`      // otherwise the engine may have more
	Blocks       int64  `json:"blocks"`        // of its holder in all groups and tiers, predicted ones left out
	NextSequence uint64 `json:"next_sequence"` // of batches
	BatchRank    *int   `json:"batch_rank,omitempty"`

	Batches  int64 `json:"batches"`
	Stored   int64 `json:"stored"`  // blocks
	Removed  int64 `json:"removed"` // blocks
	Cleared  int64 `json:"cleared"` // events
	Unheld   int64 `json:"unheld"`  // blocks that no event removes
	Dropped  int64 `json:"dropped"` // blocks, because the memory for them was used
	Unknown  int64 `json:"unknown"` // events
	Gaps     int64 `json:"gaps"`
	Lost     int64 `json:"lost"` // how often events were lost
	Replays  int64 `json:"replays"`
	Checks   int64 `json:"checks"`
	Restarts int64 `json:"restarts"`
	Connects int64 `json:"connects"`
	Errors   int64 `json:"errors"`

	LastEvent     time.Time `json:"last_event,omitzero"`  // when the last new batch arrived
	LastError     string    `json:"last_error,omitempty"` // empty if it is live and complete, and for all but administrators
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
	// Hashes says whether the engine hashes token ids as the server: unchecked, agree or differ; HashesReason how it hashes.
	Hashes       string `json:"hashes"`
	HashesReason string `json:"hashes_reason,omitempty"`
}

// decodeServices reads a reply of /services.
func decodeServices(reply []byte) (*Services, error) {
	s := &Services{JSON: reply}
	if err := json.Unmarshal(reply, s); err != nil {
		return nil, err
	}
	if s.Models == nil || s.Sources == nil {
		return nil, errors.New("models or sources are missing")
	}
	return s, nil
}
