package events

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// maxApply is how many hashes one call of a Holder has at most: a longer event is split, so that
// nothing waits long for a lock of the Holder, and held stays small.
const maxApply = 4096

// gpuMedium is the medium of vLLM's block pool, the only one that keeps copies. A connector may say
// twice that it has stored a block, of which there is one.
const gpuMedium = "GPU"

// isUnheld reports whether no event says when the blocks of a tier go. Such blocks are not held. These
// are the tiers of
//
//   - connectors to a store, vLLM's MooncakeStore and LMCache: "cpu", or the name of a device. The
//     engines' own media are in upper case.
//   - vLLM's offloading to files and objects: STORAGE, in 0.26 also FS and OBJ. Tiers whose blocks are
//     removed have an owner, from 0.29 on. The disk of the simple offloading has none and says the same
//     as files, so it is not held either.
func isUnheld(t *Tier) bool {
	switch t.Medium {
	case gpuMedium, "CPU":
		return false
	case "STORAGE", "FS", "OBJ":
		return t.Ownership == ""
	}
	return t.Medium != strings.ToUpper(t.Medium)
}

// errHolder marks the errors of the Holder among those of a batch.
var errHolder = errors.New("events: a batch could not be applied")

// applier applies events to a Holder and counts copies, by these rules:
//
//   - A block that is stored again is another copy if the event names a group and the medium GPU,
//     as those of vLLM's block pool do, and a parent. Without a parent it may be a full report of
//     what is cached already, and does not count unless exactCopies is set.
//   - A full report of a group with a sliding window or the like names blocks in front of the window
//     that the engine does not cache. They are not held, see mayBePartial.
//   - A removal removes one copy. If several groups or tiers may be meant, it removes all.
//   - A block that no event will remove is not held, see isUnheld.
//
// So a block never has more copies here than in the engine. Not safe for concurrent use.
type applier struct {
	holder      Holder
	exactCopies bool
	copies      copies
	stats       *Status
	// stopped returns an error once the batch is not to be applied to its end: one that names
	// no group in its removals may take minutes.
	stopped func() error

	held    [maxApply]bool
	blocks  Blocks
	removal removal
	added   []byte // hashes of a partial report that were not held before, joined
}

// removal is what the events of a batch remove that were gathered: blocks of one group and tier
// that have no further copies.
type removal struct {
	group   int
	tier    Tier
	hashLen int
	hashes  []byte // joined
}

// emptied returns b without elements, to be used again unless it is large.
func emptied(b []byte) []byte {
	if cap(b) > 1<<20 {
		return nil
	}
	return b[:0]
}

func newApplier(holder Holder, cfg *Config, stats *Status) *applier {
	return &applier{holder: holder, exactCopies: cfg.ExactCopies, stats: stats, stopped: func() error { return nil }}
}

// clear removes all blocks.
func (a *applier) clear() {
	a.removal.hashes = a.removal.hashes[:0]
	a.copies.reset()
	a.holder.Clear()
}

// store applies an event of KindStored.
func (a *applier) store(e *Event) error {
	n, hashLen := e.Hashes.Len(), e.Hashes.HashLen()
	if n == 0 {
		return nil // vLLM says so of a sliding window that caches nothing of a prompt
	}
	if isUnheld(&e.Tier) {
		a.stats.Unheld += int64(n)
		return nil
	}
	if err := a.flush(); err != nil {
		return err
	}
	a.stats.Stored += int64(n)
	if err := a.copies.addGroupTier(e.Group, &e.Tier); err != nil {
		return fmt.Errorf("%w: %w", errHolder, err)
	}
	b := &a.blocks
	*b = e.Blocks
	partial, from := a.mayBePartial(e), 0
	if partial && !a.stats.Complete && n > windowBlocks(e) {
		from = n - windowBlocks(e)
		b.Parent = e.Hashes.At(from - 1)
	}
	front := 0 // bytes of a.added in front of the last block that was held
	a.added = a.added[:0]
	for ; from < n; from += maxApply {
		part := e.Hashes.Bytes()[from*hashLen : min(from+maxApply, n)*hashLen]
		b.Hashes = coordinator.NewHashes(part, hashLen)
		held := a.held[:b.Hashes.Len()]
		clear(held)
		if err := a.holder.Store(b, held); err != nil {
			return fmt.Errorf("%w: %w", errHolder, err)
		}
		a.countCopies(e, held)
		if partial {
			front = a.recordAdded(held, front)
		}
		b.Parent = part[len(part)-hashLen:]
	}
	if partial {
		a.removeFront(e, front)
	}
	return nil
}

// countCopies counts copies of those of a.blocks that were held before.
func (a *applier) countCopies(e *Event, held []bool) {
	if e.Group == NoGroup || e.Tier.Medium != gpuMedium || !a.exactCopies && len(e.Parent) == 0 {
		return
	}
	for i, was := range held {
		if was {
			a.copies.add(e.Group, &e.Tier, a.blocks.Hashes.At(i))
		}
	}
}

// recordAdded appends those of a.blocks that were not held before to a.added. It returns how many bytes
// of a.added are in front of the last block that the engine may have cached before, or front if there is
// none.
func (a *applier) recordAdded(held []bool, front int) int {
	b := &a.blocks
	for i, was := range held {
		hash := b.Hashes.At(i)
		if was || a.copies.mayMiss(b.Group, &b.Tier, hash) {
			front = len(a.added)
		}
		if was {
			a.copies.recordMissing(b.Group, &b.Tier, hash) // it may be a copy, which is not counted
		} else {
			a.added = append(a.added, hash...)
		}
	}
	return front
}

// mayBePartial reports whether an event may be a full report of a group that caches a prefix only in
// part, as one with a sliding window. Such a report names all blocks of the prefix. The engine caches
// those from some block on, and none in front of it. So new blocks in front of one that was held, or
// that may be missing here, are removed again. A source that is not complete may hold none of them: of
// its events only the window is stored. Blocks that the engine did compute may be missing then.
func (a *applier) mayBePartial(e *Event) bool {
	if a.exactCopies || e.Group == NoGroup || len(e.Parent) > 0 {
		return false
	}
	switch e.SpecKind {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return false
	}
	return true
}

// windowBlocks returns how many blocks at the end of a full report are cached at least.
func windowBlocks(e *Event) int {
	if e.SlidingWindow <= 1 || e.BlockSize <= 0 {
		return 1
	}
	return int(min((e.SlidingWindow-2)/e.BlockSize+1, math.MaxInt32))
}

// removeFront removes the blocks of the first bytes of a.added again, and empties it.
func (a *applier) removeFront(e *Event, bytes int) {
	r := &a.removal // empty after a store
	r.group, r.tier, r.hashLen = e.Group, e.Tier, e.Hashes.HashLen()
	r.hashes = append(r.hashes, a.added[:bytes]...)
	for hash := range slices.Chunk(a.added[:bytes], r.hashLen) {
		a.copies.recordMissing(e.Group, &e.Tier, hash)
	}
	a.added = emptied(a.added)
}

// remove applies an event of KindRemoved. Engines send one for each block, so those of one group and
// tier are gathered until flush.
func (a *applier) remove(e *Event) error {
	n, hashLen := e.Hashes.Len(), e.Hashes.HashLen()
	a.stats.Removed += int64(n)
	if n == 0 {
		return nil
	}
	r := &a.removal
	if len(r.hashes) > 0 && (r.group != e.Group || r.tier != e.Tier || r.hashLen != hashLen || len(r.hashes) >= maxApply*hashLen) {
		if err := a.flush(); err != nil {
			return err
		}
	}
	r.group, r.tier, r.hashLen = e.Group, e.Tier, hashLen
	if len(a.copies.extra) == 0 {
		r.hashes = append(r.hashes, e.Hashes.Bytes()...)
		return nil
	}
	for _, hash := range e.Hashes.All() {
		if !a.copies.remove(e.Group, &e.Tier, hash) {
			r.hashes = append(r.hashes, hash...)
		}
	}
	return nil
}

// flush passes the removals that were gathered to the Holder.
func (a *applier) flush() error {
	r := &a.removal
	for blob := r.hashes; len(blob) > 0; {
		part := blob[:min(len(blob), maxApply*r.hashLen)]
		blob = blob[len(part):]
		if err := a.stopped(); err != nil {
			return err
		}
		a.blocks = Blocks{Group: r.group, Tier: r.tier, Hashes: coordinator.NewHashes(part, r.hashLen)}
		if err := a.holder.Remove(&a.blocks); err != nil {
			return fmt.Errorf("%w: %w", errHolder, err)
		}
	}
	r.hashes = emptied(r.hashes)
	return nil
}
