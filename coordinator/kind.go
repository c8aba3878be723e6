package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is the attention kind of a group of layers. The zero value is
// FullAttention.
type Kind uint8

// The kinds, by family. docs/releases.md lists the classes of vLLM.
const (
	// The full-attention family.
	FullAttention Kind = iota
	MLAAttention
	SinkFullAttention
	RSWA // with a window that only makes specs unequal
	HiddenState

	// The sliding-window family.
	SlidingWindow
	SlidingWindowMLA

	ChunkedLocalAttention
	Mamba

	// Scratch memory, which no prefix cache keeps. From 0.30.0 on these groups
	// are no store groups. Before, none of their blocks is ever a hit.
	CircularBuffer
	KPoolTail
	HiSparseHot
	HiSparseResident
	numKinds
)

var kindNames = [numKinds]string{
	FullAttention:         "full_attention",
	MLAAttention:          "mla_attention",
	SinkFullAttention:     "sink_full_attention",
	RSWA:                  "rswa",
	HiddenState:           "hidden_state",
	SlidingWindow:         "sliding_window",
	SlidingWindowMLA:      "sliding_window_mla",
	ChunkedLocalAttention: "chunked_local_attention",
	Mamba:                 "mamba",
	CircularBuffer:        "circular_buffer",
	KPoolTail:             "kpool_tail",
	HiSparseHot:           "hisparse_hot",
	HiSparseResident:      "hisparse_resident",
}

// String returns the name used in configuration, for example "full_attention".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind returns the kind with the given name. There is none for cross attention: the
// reference finds no hits for it either.
func ParseKind(name string) (Kind, error) {
	if i := slices.Index(kindNames[:], name); i >= 0 {
		return Kind(i), nil
	}
	if name == "cross_attention" {
		return 0, errors.New("kind cross_attention has no prefix-cache rule in the reference, leave its group out of the pool")
	}
	return 0, fmt.Errorf("unknown kind %q, want one of %s", name, strings.Join(kindNames[:], ", "))
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) {
	if int(k) >= len(kindNames) {
		return nil, fmt.Errorf("unknown kind number %d", uint8(k))
	}
	return []byte(kindNames[k]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	parsed, err := ParseKind(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// IsFull reports whether the kind follows the full-attention rule.
func (k Kind) IsFull() bool { return k <= HiddenState }

// IsWindow reports whether the kind follows the sliding-window rule.
func (k Kind) IsWindow() bool { return k == SlidingWindow || k == SlidingWindowMLA }

// MayBeNamed reports whether vLLM may name a group of this kind so in its KV events (kv_cache_spec_kind). A name that is
// not known may be of any kind.
func (k Kind) MayBeNamed(specKind string) bool {
	switch specKind {
	case "full_attention", "mla_attention", "sink_full_attention":
		return k.IsFull()
	case "sliding_window", "sliding_window_mla":
		return k.IsWindow()
	case "chunked_local_attention":
		return k == ChunkedLocalAttention
	case "mamba":
		return k == Mamba
	}
	return true
}

// mla reports whether one copy of a block serves every tensor-parallel rank.
func (k Kind) mla() bool { return k == MLAAttention || k == SlidingWindowMLA || k == HiddenState }

// scratch reports whether the kind is scratch memory.
func (k Kind) scratch() bool { return k >= CircularBuffer }
