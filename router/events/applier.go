package events

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// maxApply is how many hashes one call of a Holder has at most: a longer event is split, so that
// nothing waits long for a lock of the Holder, and held stays small.
const maxApply = 4096

// Media that keep copies: that of vLLM's block pool, and that of its offloading in chunks, which may have blocks in
// common. Another connector may say twice that it has stored a block, of which there is one.
const gpuMedium, chunkMedium = "GPU", "CPU"

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
	case gpuMedium, chunkMedium:
		return false
	case "STORAGE", "FS", "OBJ":
		return t.Ownership == ""
	}
	return t.Medium != strings.ToUpper(t.Medium)
}

// errHolder marks the errors of the Holder among those of a batch.
var errHolder = errors.New("a batch could not be applied")

// applier applies events to a Holder and counts copies, by these rules:
//
//   - A block that is stored again is another copy if the event names a group and the medium GPU,
//     as those of vLLM's block pool do, and a parent. Without a parent it may be a full report of
//     what is cached already, and does not count unless exactCopies is set. So is each block of a new chunk in CPU:
//     one whose last block was not held.
//   - A full report of a group with a sliding window or the like names blocks before the window
//     that the engine does not cache. They are not held, see mayBePartial.
//   - A removal removes one copy, or says how many remain. If several groups or tiers may be meant, or with oneRemoval,
//     it removes all.
//   - A block that no event will remove is not held, see isUnheld.
//
// So a block never has more copies here than in the engine. Not safe for concurrent use.
type applier struct {
	holder      Holder
	exactCopies bool
	oneRemoval  bool
	copies      copies
	stats       *Status
	// stopped returns an error once the batch is not to be applied to its end: one that names
	// no group in its removals may take minutes.
	stopped func() error
	pause   func() (resume func()) // Blocks.Pause

	held    [maxApply]bool
	blocks  Blocks
	removal removal
	unheld  string // medium of the last blocks that were not held
	leftOut error  // of the first blocks since clear that the Holder, or copies, had no group and tier for
	reason  string // why the source was last not sure, for people
	fresh   []bool // of the blocks of a partial report, from the first that is stored on: it was not held before
}

// removal is what the events of a batch remove that were gathered: blocks of one group and tier
// that have no further copies, maxKept bytes at most.
type removal struct {
	group   int
	tier    Tier
	hashLen int
	hashes  []byte // joined
}

// emptied returns b without elements, to be used again unless it is large.
func emptied[T byte | bool](b []T) []T {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

func newApplier(holder Holder, cfg *Config, stats *Status) *applier {
	return &applier{holder: holder, exactCopies: cfg.ExactCopies, oneRemoval: cfg.OneRemoval, stats: stats, stopped: func() error { return nil }}
}

// clear removes all blocks.
func (a *applier) clear() {
	a.removal.hashes = a.removal.hashes[:0]
	a.copies.reset()
	a.leftOut = nil
	a.holder.Clear()
	a.countDropped() // of what it had
}

// clearTier removes all blocks that a clear of a tier may mean.
func (a *applier) clearTier(tier *Tier) error {
	a.copies.clearTier(tier)
	a.blocks = Blocks{Group: NoGroup, Tier: *tier, Pause: a.pause}
	if err := a.holder.ClearTier(&a.blocks, a.stopped); err != nil {
		return fmt.Errorf("%w: %w", errHolder, err)
	}
	return nil
}

// countDropped counts what the Holder has dropped by itself: then the source is incomplete.
func (a *applier) countDropped() {
	if dropped := a.holder.Dropped(); dropped > a.stats.Dropped {
		a.stats.Dropped, a.stats.Complete = dropped, false
	}
}

// failed returns the error of a batch from one of the Holder. There is none if that is ErrTiers: blocks that have no
// group and tier are left out, which leaves what is held right.
func (a *applier) failed(err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrTiers) {
		return fmt.Errorf("%w: %w", errHolder, err)
	}
	a.stats.Complete = false
	if a.leftOut == nil {
		if a.leftOut = fmt.Errorf("blocks are left out: %w", err); !a.stats.Stale {
			a.reason = a.leftOut.Error()
		}
	}
	return nil
}

// store applies an event of KindStored.
func (a *applier) store(e *Event) error {
	n, hashLen := e.Hashes.Len(), e.Hashes.HashLen()
	if isUnheld(&e.Tier) {
		a.stats.Unheld += int64(n)
		a.unheld = e.Tier.Medium
		return nil
	}
	if err := a.flush(); err != nil {
		return err
	}
	a.stats.Stored += int64(n)
	err := a.copies.addGroupTier(e.Group, &e.Tier)
	b := &a.blocks
	*b = e.Blocks
	b.Pause = a.pause
	if n == 0 || err != nil { // vLLM says so of a sliding window that caches nothing of a prompt: there is such a group
		b.Hashes = coordinator.Hashes{}
		return a.failed(cmp.Or(a.holder.Store(b, nil), err))
	}
	partial, from := a.mayBePartial(e), 0
	if partial {
		a.countDropped()
	}
	wasComplete := a.stats.Complete
	if partial && !wasComplete && n > windowBlocks(e) {
		from = n - windowBlocks(e)
		b.Parent = e.Hashes.At(from - 1)
	}
	a.fresh = a.fresh[:0]
	front, stored := 0, from // how many of a.fresh are before the last block that was held, and the first of them
	for ; from < n; from += maxApply {
		part := e.Hashes.Bytes()[from*hashLen : min(from+maxApply, n)*hashLen]
		b.Hashes = coordinator.NewHashes(part, hashLen)
		held := a.held[:b.Hashes.Len()]
		clear(held)
		if err := a.holder.Store(b, held); err != nil {
			return a.failed(err)
		}
		a.countCopies(e, held)
		if partial {
			front = a.recordFresh(held, front)
		}
		b.Parent = part[len(part)-hashLen:]
	}
	if partial {
		if a.countDropped(); a.stats.Complete != wasComplete {
			front = len(a.fresh) // blocks were dropped meanwhile, so held does not tell what the engine cached before
		}
		return a.removeFront(e, stored, front)
	}
	return nil
}

// countCopies counts copies of those of a.blocks that were held before.
func (a *applier) countCopies(e *Event, held []bool) {
	isChunk := len(held) > 0 && len(held) == e.Hashes.Len() && !held[len(held)-1]
	switch {
	case e.Group == NoGroup || a.oneRemoval:
		return
	case e.Tier.Medium == gpuMedium && (a.exactCopies || len(e.Parent) > 0):
	case e.Tier.Medium == chunkMedium && isChunk:
	default:
		return
	}
	for i, was := range held {
		if was {
			a.copies.add(e.Group, &e.Tier, a.blocks.Hashes.At(i))
		}
	}
}

// recordFresh appends which of a.blocks were not held before to a.fresh. It returns how many of a.fresh are in front
// of the last block that the engine may have cached before, or front if there is none.
func (a *applier) recordFresh(held []bool, front int) int {
	b := &a.blocks
	for i, was := range held {
		hash := b.Hashes.At(i)
		if was || a.copies.isMaybeCached(b.Group, &b.Tier, hash) {
			front = len(a.fresh)
		}
		if was {
			a.copies.addMaybeCached(b.Group, &b.Tier, hash) // it may be a copy, which is not counted
		}
		a.fresh = append(a.fresh, !was)
	}
	return front
}

// mayBePartial reports whether an event may be a full report of a group that caches a prefix only in
// part, as one with a sliding window. Such a report names all blocks of the prefix. The engine caches
// those from some block on, and none before it. So new blocks before one that was held, or
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

// removeFront removes those of the first blocks of a.fresh again that were not held, and empties it. The first is block
// stored of e.
func (a *applier) removeFront(e *Event, stored, front int) error {
	defer func() { a.fresh = emptied(a.fresh) }()
	for i, fresh := range a.fresh[:front] {
		if !fresh {
			continue
		}
		hash := e.Hashes.At(stored + i)
		a.copies.addMaybeCached(e.Group, &e.Tier, hash)
		if err := a.gather(e, hash); err != nil {
			return err
		}
	}
	return nil
}

// remove applies an event of KindRemoved. Engines send one for each block, so those of one group and
// tier are gathered until flush.
func (a *applier) remove(e *Event) error {
	a.stats.Removed += int64(e.Hashes.Len())
	left, err := e.remaining()
	if err != nil {
		return err
	}
	if len(a.copies.extra) == 0 && left == nil {
		return a.gather(e, e.Hashes.Bytes())
	}
	for _, hash := range e.Hashes.All() {
		if left != nil {
			var n int64
			if n, left, err = readInt(left, 0, math.MaxUint32); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrPayload, remainingKey, err)
			}
			if a.copies.set(e.Group, &e.Tier, hash, uint32(n)) {
				continue
			}
		} else if a.copies.remove(e.Group, &e.Tier, hash) {
			continue
		}
		if err := a.gather(e, hash); err != nil {
			return err
		}
	}
	return nil
}

// gather adds hashes of e to the removal, and flushes it when it is full or of another group or tier.
func (a *applier) gather(e *Event, hashes []byte) error {
	r, hashLen := &a.removal, e.Hashes.HashLen()
	for len(hashes) > 0 {
		if len(r.hashes) > 0 && (r.group != e.Group || r.tier != e.Tier || r.hashLen != hashLen || len(r.hashes)+hashLen > maxKept) {
			if err := a.flush(); err != nil {
				return err
			}
		}
		r.group, r.tier, r.hashLen = e.Group, e.Tier, hashLen
		n := min(len(hashes), (maxKept-len(r.hashes))/hashLen*hashLen)
		r.hashes = append(r.hashes, hashes[:n]...)
		hashes = hashes[n:]
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
		a.blocks = Blocks{Group: r.group, Tier: r.tier, Hashes: coordinator.NewHashes(part, r.hashLen), Pause: a.pause}
		if err := a.holder.Remove(&a.blocks); err != nil {
			return fmt.Errorf("%w: %w", errHolder, err)
		}
	}
	r.hashes = emptied(r.hashes)
	return nil
}
