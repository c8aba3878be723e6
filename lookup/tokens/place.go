package tokens

import "github.com/hitline/hitline/lookup/api"

// Place says where some tokens of a prompt went. Its text is a label of metrics.
type Place uint8

// The places. From Emptied to Unsaved they are lost: a pool that had kept every block that was asked for before would
// have given these tokens.
const (
	Engine   Place = iota // the engine holds them itself: they lie before the start of the lookup
	InPool                // the pool gave them
	Emptied               // the store was emptied, or the block was evicted by request
	Evicted               // the store evicted the block
	Saving                // another request computes the block, or has just computed it
	Partial               // the block is on some of its ranks or in some of its groups only
	Unsaved               // the block was computed, and is nowhere in the store
	NoAnswer              // the store did not answer, or the answer came too late
	Rules                 // no pool could give them: alignment, the block that EAGLE drops, the last token
	New                   // nobody asked for them before
	NumPlaces
)

var placeNames = [NumPlaces]string{
	"engine", "pool", "emptied", "evicted", "saving", "partial", "unsaved", "no_answer", "rules", "new",
}

// String returns the label of the place.
func (p Place) String() string { return placeNames[p] }

// Cure says what to do if many tokens are of the place, "" if there is nothing to do.
func (p Place) Cure() string {
	switch p {
	case Emptied:
		return "find out who resets, restarts or flushes the store, or evicts blocks by request"
	case Evicted:
		return "make the pool larger"
	case Saving:
		return "if it is much, send equal prompts to one engine"
	case Partial:
		return "find the rank whose puts fail, and see what a hybrid's engine saves"
	case Unsaved:
		return "look for puts that fail: a full segment, a quota, an engine that only loads"
	case NoAnswer:
		return "see why the store is late, fails, or is busy"
	case Rules:
		return "smaller scheduler blocks; EAGLE gives up a block of each prompt"
	}
	return ""
}

// ToMend returns the place of most tokens that a pool could have had, and their share in what it was asked for. It returns false
// if there are none.
func ToMend(tokens map[string]int64) (worst Place, share float64, ok bool) {
	for p := range NumPlaces {
		n := tokens[p.String()]
		if (p.IsLost() || p == NoAnswer) && n > 0 && (!ok || n > tokens[worst.String()]) {
			worst, ok = p, true
		}
	}
	if !ok {
		return 0, 0, false
	}
	return worst, float64(tokens[worst.String()]) / float64(api.AskedOfPool(tokens)), true
}

// IsLost reports whether a pool that keeps everything would have given the tokens.
func (p Place) IsLost() bool { return p >= Emptied && p <= Unsaved }

// Counts are tokens by place.
type Counts [NumPlaces]int64

// Total returns the tokens of all places.
func (c *Counts) Total() (n int64) {
	for _, tokens := range c {
		n += tokens
	}
	return n
}
