package events

import "github.com/hitline/hitline/coordinator"

// Kind is the type of an event.
type Kind uint8

const (
	KindUnknown Kind = iota // an event that this version does not know; nothing else is set
	KindStored              // blocks were stored
	KindRemoved             // blocks were removed
	KindCleared             // all blocks were removed; nothing else is set
)

// NoGroup is the group of an event without one.
const NoGroup = -1

// Tier is what holds a block: vLLM and SGLang name the medium (GPU, CPU, STORAGE, CPU_PINNED,
// DISK, EXTERNAL; vLLM 0.26 also FS and OBJ). A field is empty if the event lacks it.
type Tier struct {
	Medium    string
	Locality  string // LOCAL or REMOTE, from vLLM 0.26 on
	Ownership string // of a secondary tier, from vLLM 0.29 on
}

// Event is one decoded event. All slices are borrowed, see Decode.
type Event struct {
	Kind Kind
	// Hashes are the block hashes, 1 to 64 bytes each. Integers become 8 bytes, big-endian,
	// whether the engine sends them with or without a sign.
	Hashes coordinator.Hashes
	// Parent is the hash in front of the first block, empty at the root.
	Parent    []byte
	BlockSize int64 // tokens of a block, 0 if absent
	Group     int   // KV cache group, NoGroup if absent
	Tier      Tier

	LoRAName, CacheSalt string
	SpecKind            string
	SlidingWindow       int64 // tokens, -1 if absent
	Bigrams             bool  // tokens come in overlapping pairs (SGLang with EAGLE)

	tokens, extraKeys, lookahead []byte // msgpack, empty if there are none
}

// hasBlocks reports whether the event is about certain blocks.
func (e *Event) hasBlocks() bool { return e.Kind == KindStored || e.Kind == KindRemoved }

// Batch is what a payload has beside its events.
type Batch struct {
	Time float64 // seconds since 1970, the publisher's clock
	Rank int     // data-parallel rank, -1 if absent
}
