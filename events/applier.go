package events

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/netproto"
)

// maxApply is how many hashes one call of a Holder has at most: a longer event is split, so that
// nothing waits long for a lock of the Holder, and held stays small.
const maxApply = 4096

// hintMedium is the medium of vLLM's MooncakeStore connector. No event says when such a block
// goes, so it is not held; the engine's own media are in upper case.
const hintMedium = "cpu"

// errHolder marks the errors of the Holder among those of a batch.
var errHolder = errors.New("events: a batch could not be applied")

// applier applies events to a Holder and counts copies, by these rules:
//
//   - A block that is stored again is another copy if the event names a group and a medium, as
//     those of vLLM's block pool do, and a parent. Without a parent it may be a full report of
//     what is cached already, and does not count unless exactCopies is set.
//   - A removal removes one copy. If it does not say which group or medium, it removes all.
//   - A block of the hint medium is not held.
//
// So a block never has more copies here than in the engine. Not safe for concurrent use.
type applier struct {
	holder      Holder
	size        interface{ Len() int } // holder, or nil if it cannot tell
	maxBlocks   int
	exactCopies bool
	copies      copies
	stats       *Status

	held    [maxApply]bool
	blocks  Blocks
	removed []byte // hashes of one removal that have no further copies
}

func newApplier(holder Holder, cfg *Config, stats *Status) *applier {
	a := &applier{holder: holder, maxBlocks: cfg.MaxBlocks, exactCopies: cfg.ExactCopies, stats: stats}
	a.size, _ = holder.(interface{ Len() int })
	return a
}

// clear removes all blocks.
func (a *applier) clear() {
	a.copies.reset()
	a.holder.Clear()
}

// store applies an event of KindStored.
func (a *applier) store(e *Event) error {
	n, hashLen := e.Hashes.Len(), e.Hashes.HashLen()
	if e.Tier.Medium == hintMedium {
		a.stats.Hints += int64(n)
		return nil
	}
	a.stats.Stored += int64(n)
	counted := e.Group != NoGroup && e.Tier.Medium != "" && (a.exactCopies || len(e.Parent) > 0)
	blob, parent := e.Hashes.Bytes(), e.Parent
	for from := 0; from < n; from += maxApply {
		part := blob[from*hashLen : min(from+maxApply, n)*hashLen]
		a.blocks = Blocks{Group: e.Group, Tier: e.Tier, Parent: parent,
			Hashes: netproto.NewHashes(part, hashLen), BlockSize: e.BlockSize}
		held := a.held[:a.blocks.Hashes.Len()]
		clear(held)
		if err := a.holder.Store(&a.blocks, held); err != nil {
			return fmt.Errorf("%w: %w", errHolder, err)
		}
		for i, was := range held {
			if was && counted {
				a.copies.add(e.Group, &e.Tier, a.blocks.Hashes.At(i))
			}
		}
		parent = part[len(part)-hashLen:]
	}
	if a.size != nil && a.maxBlocks > 0 && a.size.Len() > a.maxBlocks {
		return fmt.Errorf("%w: %w: over %d", errHolder, ErrFull, a.maxBlocks)
	}
	return nil
}

// remove applies an event of KindRemoved.
func (a *applier) remove(e *Event) error {
	n, hashLen := e.Hashes.Len(), e.Hashes.HashLen()
	a.stats.Removed += int64(n)
	if e.Tier.Medium == hintMedium {
		return nil
	}
	blob := e.Hashes.Bytes()
	for from := 0; from < n; from += maxApply {
		part := blob[from*hashLen : min(from+maxApply, n)*hashLen]
		if len(a.copies.extra) > 0 {
			part = a.withoutCopies(e, part, hashLen)
		}
		if len(part) == 0 {
			continue
		}
		a.blocks = Blocks{Group: e.Group, Tier: e.Tier, Hashes: netproto.NewHashes(part, hashLen), BlockSize: e.BlockSize}
		if err := a.holder.Remove(&a.blocks); err != nil {
			return fmt.Errorf("%w: %w", errHolder, err)
		}
	}
	return nil
}

// withoutCopies removes one copy of each of the hashes and returns those that had no further one.
func (a *applier) withoutCopies(e *Event, hashes []byte, hashLen int) []byte {
	a.removed = a.removed[:0]
	for ; len(hashes) > 0; hashes = hashes[hashLen:] {
		if hash := hashes[:hashLen]; !a.copies.remove(e.Group, &e.Tier, hash) {
			a.removed = append(a.removed, hash...)
		}
	}
	return a.removed
}
