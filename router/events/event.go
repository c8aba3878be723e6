package events

// Kind is the type of an event.
type Kind uint8

const (
	KindUnknown Kind = iota // an event that this version does not know; nothing else is set
	KindStored              // blocks were stored
	KindRemoved             // blocks were removed
	KindCleared             // all blocks were removed; nothing else is set
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

// Batch is what a payload has beside its events.
type Batch struct {
	Time float64 // seconds since 1970, the publisher's clock
	Rank int     // data-parallel rank, -1 if absent
}
