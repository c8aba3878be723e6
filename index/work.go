package index

// Work is counted in units of about the time in which a lookup compares one key of a
// run, 2 to 3 nanoseconds on a server of 2023. The numbers are estimates for a large
// index, whose table and log do not fit the processor's caches. They count calls,
// pieces and keys, never time: the same calls on the same index cost the same.
const (
	workPerCall  = 32 // of a method, or of a hold of the lock
	workPerKey   = 32 // hashing a key and asking the table for it
	workPerBatch = 12 // the same where the cache misses of a batch overlap
	workPerRun   = 8  // beginning to compare a run
	workPerGroup = 32 // comparing a group of 64 keys by its digest, from memory

	// Of changes.
	workPerStored  = 48                // a key that is stored, or looked for to be stored
	workPerEvicted = 48                // an entry that is evicted
	workPerLook    = 256               // looking for the oldest row of a segment
	rowsPerWork    = 8                 // rows that one unit gives a time of use
	workPerClass   = 64                // making or freeing a class
	placesPerWork  = 2                 // places that one unit looks for in a class
	workPerChange  = 1                 // a place that a new class has more, or less
	workPerSegment = 1 << 10           // making a segment
	workPerSplit   = pageCells * 3 / 2 // splitting a page of the table
	workPerRehash  = 12                // hashing a key for it, and entering it anew
	workPerRelease = 16 << 10          // unmapping a huge page
)

// Work is what the lookup has cost since Begin, in units of 2 to 3 nanoseconds.
func (c *Cursor) Work() int { return c.work }

// Work is what the store has cost so far, in units of 2 to 3 nanoseconds. The evictions for
// it and the uses by lookups that it has applied count.
func (w *Writer) Work() int { return w.work }
