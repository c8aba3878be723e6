package events

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// Kind is the type of an event.
type Kind uint8

const (
	KindUnknown     Kind = iota // an event that this version does not know; nothing else is set
	KindStored                  // blocks were stored
	KindRemoved                 // blocks were removed
	KindCleared                 // all blocks were removed; nothing else is set
	KindTierCleared             // all blocks of Tier.Medium were removed; nothing else is set
)

// Event is one decoded event. All slices are borrowed, see Decode.
type Event struct {
	Kind Kind
	Blocks
	LoRAName string
	raw      rawFields
}

// hasBlocks reports whether the event is about certain blocks.
func (e *Event) hasBlocks() bool { return e.Kind == KindStored || e.Kind == KindRemoved }

// Batch is what a payload has besides its events.
type Batch struct {
	Time float64 // seconds since 1970, the publisher's clock
	Rank int     // data-parallel rank, -1 if absent
}

// remainingKey is a key of a removal: for each hash how many copies of the block remain.
const remainingKey = "remaining_copy_counts"

// remaining returns the numbers of remaining copies in MessagePack, nil if the event has none. It fails unless there is one
// for each hash.
func (e *Event) remaining() ([]byte, error) {
	if len(e.raw.remaining) == 0 || msgp.IsNil(e.raw.remaining) || e.Hashes.Len() == 0 {
		return nil, nil
	}
	n, list, err := elements(msgp.ReadArrayHeaderBytes(e.raw.remaining))
	if err == nil && n != e.Hashes.Len() {
		err = fmt.Errorf("%d numbers of %d hashes", n, e.Hashes.Len())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPayload, remainingKey, err)
	}
	return list, nil
}
