package connector

import (
	"iter"

	"github.com/hitline/hitline/netproto"
)

// Run is the chunks [First, End) of a store group, at least one. A chunk is a block of the
// group's block size; the last one may be a part of it, which ends at a tail boundary. Every
// rank that Coordinator.Ranks lists for the group loads or stores its own part of a chunk.
type Run struct {
	Group      int   // store group
	First, End int64 // chunk numbers

	stride int // hash blocks in a chunk
	last   int // number of the hash that keys the last chunk
}

// newRun returns a run whose last chunk is keyed like the others: by its last hash.
func newRun(group int, first, end int64, stride int) Run {
	return Run{Group: group, First: first, End: end, stride: stride, last: netproto.KeyIndex(int(end-1), stride)}
}

// Hashes iterates over the chunks: their numbers, and the numbers of the hashes that key them.
func (r Run) Hashes() iter.Seq2[int64, int] {
	return func(yield func(chunk int64, hash int) bool) {
		for chunk := r.First; chunk < r.End; chunk++ {
			hash := netproto.KeyIndex(int(chunk), r.stride)
			if chunk == r.End-1 {
				hash = r.last
			}
			if !yield(chunk, hash) {
				return
			}
		}
	}
}

// Before returns the number of the hash that keys the chunk before the run, -1 if the run
// begins with the first chunk of the prompt. An index links a chain by it.
func (r Run) Before() int { return netproto.KeyIndex(int(r.First-1), r.stride) }
