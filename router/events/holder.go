package events

import "github.com/hitline/hitline/coordinator"

// NoGroup is the group of blocks without one.
const NoGroup = -1

// Tier is what holds a block: vLLM and SGLang name the medium (GPU, CPU, STORAGE, CPU_PINNED,
// DISK, EXTERNAL; vLLM 0.26 also FS and OBJ). A field is empty if the event lacks it.
type Tier struct {
	Medium    string
	Locality  string // LOCAL or REMOTE, from vLLM 0.26 on
	Ownership string // of a secondary tier, from vLLM 0.29 on
}

// Blocks are blocks of one event, or of several removals in a row.
type Blocks struct {
	Group int  // KV cache group. NoGroup: Remove then removes them from all groups
	Tier  Tier // without a Medium, Remove removes them from all tiers
	// Parent is the hash before the first block, empty at the root or if it is unknown.
	Parent []byte
	// Hashes are the block hashes, 1 to 64 bytes each. Integers become 8 bytes, big-endian,
	// whether the engine sends them with or without a sign.
	Hashes        coordinator.Hashes
	BlockSize     int64  // tokens, 0 if unknown
	SpecKind      string // what the engine says of the group
	SlidingWindow int64  // tokens, -1 if absent

	// Pause lets others compute until resume is called; nil: no one needs that. A Holder calls it before it waits, and
	// about every 100 µs while it computes for long.
	Pause func() (resume func())
}

// Holder keeps what one source holds. Its methods are called by one goroutine at a time, in
// the order of the events. Arguments are borrowed until the method returns; strings stay valid.
// Until then no further event is applied: that is how a slow Holder slows its publisher down.
type Holder interface {
	// Store adds blocks and sets held[i] if block i was held in its group and tier before.
	// held has an element for each hash. Without hashes it says that the engine has such a group. If it fails with
	// ErrTiers it has stored none, and what is held stays; after other errors all is cleared.
	Store(b *Blocks, held []bool) error
	// Remove removes blocks. It ignores those that are not held. Only Group, Tier, Hashes and Pause are set:
	// removals that follow each other in a batch come together.
	Remove(b *Blocks) error
	// ClearTier removes all blocks of a tier, as Remove would. Only Group, Tier and Pause are set. It calls stopped between
	// its steps, and ends with its error. After an error all is cleared.
	ClearTier(b *Blocks, stopped func() error) error
	// Clear removes all blocks.
	Clear()
	// SetStale says whether the source may have missed events. While it is stale no block
	// counts as held. A source begins stale.
	SetStale(stale bool)
	// Len returns how many blocks are held, in all groups and tiers, for Status.Blocks.
	Len() int
	// Dropped returns how many blocks the holder has dropped by itself since it was made, which makes the source
	// incomplete.
	Dropped() int64
}
