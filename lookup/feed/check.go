package feed

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/events"
)

// maxTiers bounds the different tiers that are indexed: for a block that is removed the set is asked
// about each. An engine has one or two.
const maxTiers = 16

// shortHashLen is the length of hashes that engines send as integers, in bytes.
const shortHashLen = 8

// Errors of a Holder.
var (
	// ErrGroup refuses blocks of a KV cache group that the pool does not have: its description is not
	// that of the engine.
	ErrGroup = errors.New("feed: the pool has no such KV cache group; describe the groups of the engine")
	// ErrHashLen refuses hashes of another length than hash_len of the pool.
	ErrHashLen = errors.New("feed: hashes of another length than the pool's")
	// ErrBlockSize refuses blocks of a size that the pool's group cannot have: lookups would count
	// other tokens for a block than the engine has in it.
	ErrBlockSize = errors.New("feed: blocks of another size than the pool's; describe hash_block_size and the groups of the engine")
	// ErrKind refuses blocks of a group whose attention is of another kind than the pool's group.
	ErrKind = errors.New("feed: a group of another kind than the pool's; describe the groups of the engine in its order")
	// ErrTiers refuses the events of an engine with more different tiers than an engine has.
	ErrTiers = errors.New("feed: too many different tiers")
)

// check refuses blocks that the pool cannot hold.
func (h *Holder) check(b *events.Blocks) error {
	if g := positionOf(b.Group); g >= len(h.groups) {
		return fmt.Errorf("%w: group %d, the pool has group 0 to %d", ErrGroup, g, len(h.groups)-1)
	}
	if n := b.Hashes.HashLen(); h.hashLen != 0 && n != h.hashLen {
		return fmt.Errorf("%w: %d bytes, the pool's have %d; %s", ErrHashLen, n, h.hashLen, hashLenHint(n))
	}
	if err := h.checkKind(b); err != nil {
		return err
	}
	if err := h.checkBlockSize(b); err != nil {
		return err
	}
	if slices.Contains(h.tiers, b.Tier) {
		return nil
	}
	if len(h.tiers) == maxTiers {
		return ErrTiers
	}
	h.tiers = append(h.tiers, b.Tier)
	return nil
}

// hashLenHint says what to do about hashes of n bytes.
func hashLenHint(n int) string {
	if n == shortHashLen {
		return fmt.Sprintf("start vLLM with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 for whole digests, or set hash_len: %d", n)
	}
	return fmt.Sprintf("set hash_len: %d", n)
}

// checkBlockSize refuses blocks whose tokens are not those that the pool counts for a block. A single
// block may be smaller than those of its group, as engines cache parts of a block, but has whole hashes. Those
// of other media than the GPU may be larger: offloading joins blocks.
func (h *Holder) checkBlockSize(b *events.Blocks) error {
	size, hashSize := b.BlockSize, int64(h.pool.HashBlockSize)
	if size == 0 {
		return nil
	}
	if size%hashSize != 0 {
		return fmt.Errorf("%w: %d tokens, which is no multiple of hash_block_size %d", ErrBlockSize, size, hashSize)
	}
	g := positionOf(b.Group)
	groupSize := int64(h.pool.Groups[g].BlockSize)
	isPart := size < groupSize && b.Hashes.Len() == 1
	if size != groupSize && !isPart && b.Tier.Medium == "GPU" {
		return fmt.Errorf("%w: %d tokens, but group %d has blocks of %d", ErrBlockSize, size, g, groupSize)
	}
	return nil
}

// checkKind refuses blocks of a group that the pool describes as one of another kind or window: lookups would
// look for other blocks than the engine needs. An engine that does not say the kind, or says another one, is
// believed.
func (h *Holder) checkKind(b *events.Blocks) error {
	g := positionOf(b.Group)
	group := h.pool.Groups[g]
	if !group.Kind.MayBeNamed(b.SpecKind) {
		return fmt.Errorf("%w: group %d is %s, but %s in the pool", ErrKind, g, b.SpecKind, group.Kind)
	}
	if group.Kind.IsWindow() && b.SlidingWindow > 0 && b.SlidingWindow != int64(group.SlidingWindow) {
		return fmt.Errorf("%w: group %d has a window of %d tokens, but one of %d in the pool", ErrKind, g, b.SlidingWindow, group.SlidingWindow)
	}
	return nil
}
