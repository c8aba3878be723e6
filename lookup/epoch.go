package lookup

import (
	"sync/atomic"

	"github.com/hitline/hitline/backend"
)

// epoch numbers the epochs of a store. One begins whenever keys may have gone: by an evict or a reset
// (also when one that was given up has returned), by a call that failed, or as the backend says.
// What outlives a call has the epoch of its begin, and is used in no later one: found blocks, an
// answer that others share, a renewal. The caller of a call gets its own answer in any case.
//
// The value is only compared. It is a sum of numbers that never fall: equal sums mean that none has grown.
type epoch struct {
	backend  backend.Backend
	removals atomic.Uint64 // by calls of this program, as far as they may have removed keys
}

func (e *epoch) now() uint64 { return e.removals.Load() + e.backend.Generation() }

// begin begins an epoch.
func (e *epoch) begin() { e.removals.Add(1) }
