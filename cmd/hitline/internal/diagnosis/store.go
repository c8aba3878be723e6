package diagnosis

import (
	"context"
	"time"
)

// Store is a remote store as Examine uses it. The caller owns it, and closes it when no examination runs.
type Store struct {
	Backend string        // the name in the configuration: redis, mooncake
	Address string        // without secrets
	Timeout time.Duration // of a lookup

	// Exists answers 1 for each key that is present, in the order of keys.
	Exists func(ctx context.Context, keys []string) ([]int, error)
	Info   func(ctx context.Context) (Info, error)
	// Sample returns some of the keys. It is nil if the store cannot list its keys.
	Sample func(ctx context.Context) (Sample, error)
	// Reachable reports whether the store's address accepts a connection.
	Reachable func(ctx context.Context) bool
}

// Info is what a store reports about itself.
type Info struct {
	Server    string // name and version
	Mode      string
	Nodes     int // primaries; 0 if not reported
	RoundTrip time.Duration
	Replica   bool
}

// Sample is some of the keys of a store.
type Sample struct {
	Keys     []string      // of single blocks
	Complete bool          // the store has no other keys
	Lease    time.Duration // for which the store keeps a found block, as it says itself; 0 if it does not
}
