package tokens

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

// HitShare returns the share of InPool in what a pool can be asked for: all but Engine and Rules. It is 0 if nothing was
// asked for.
func (c *Counts) HitShare() float64 {
	asked := c.Total() - c[Engine] - c[Rules]
	if asked == 0 {
		return 0
	}
	return float64(c[InPool]) / float64(asked)
}
