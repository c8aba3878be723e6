package lookup

import (
	"context"
	"errors"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/ctxerr"
)

// epoch returns the epoch of the store. A new one begins whenever keys may have gone from the store: by an evict or a
// reset (also when one that was given up has returned), by a call that failed, or as the backend says, which knows
// of connections and processes. What outlives a call has the epoch of its begin: blocks that were found, an answer that
// others share, a renewal. It is used in no later one. The caller of a call gets its own answer in any case.
//
// The value is only compared. It is a sum of numbers that never fall, so equal sums mean that none has grown.
func (b *SharedBackend) epoch() uint64 {
	return b.removals.Load() + b.Generation()
}

// Generation returns a number that grows whenever another process of the store may answer. It is 0 for a store that does
// not tell.
func (b *SharedBackend) Generation() uint64 {
	if b.watcher == nil {
		return 0
	}
	return b.watcher.Generation()
}

// beginEpoch begins an epoch.
func (b *SharedBackend) beginEpoch() { b.removals.Add(1) }

// sharingEpoch is epoch for lookups of this pool that share an answer: a store begins one, too, but of nothing else.
func (r *remote) sharingEpoch() uint64 { return r.epoch() + r.stores.Load() }

// changeReturned begins an epoch when a change that was given up has returned. It may have happened just now.
func (b *SharedBackend) changeReturned(kind callKind) {
	if kind != callStore {
		b.beginEpoch()
	}
}

// updateEpoch begins the epochs that follow from a call which has ended with err, the error of a change as
// markPartlyDone returns it.
func (c *breakerCall) updateEpoch(err error) {
	if c.kind == callStore {
		c.remote.stores.Add(1) // also if it failed: it may have done a part
	}
	if c.mayHaveRemoved(err) {
		c.remote.beginEpoch()
	}
}

// mayHaveRemoved reports whether keys may have gone by or during a call. A read that is only late says nothing of that:
// if it did, a store that is slow under load would have all of it asked again, and stay slow.
func (c *breakerCall) mayHaveRemoved(err error) bool {
	refused := errors.Is(err, backend.ErrReadOnly) && !isPartlyDone(err)
	if c.kind == callEvict || c.kind == callReset {
		return !refused
	}
	late := errors.Is(err, context.Canceled) || ctxerr.Of(c.ctx) != nil
	return err != nil && !refused && !late
}
