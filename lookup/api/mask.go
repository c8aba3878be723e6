package api

import "sort"

// GroupMask says which chunks of one group to load, to store or to look up: those for which At is
// true. Chunks are numbered from the beginning of the prompt. The mask belongs to the caller.
type GroupMask struct {
	// Group is the number of the store group, NotStored if the group is not kept in the store.
	Group int
	// First and End bound the entries: there is one for each chunk from First to End-1.
	First, End int64
	// All says that the mask is the all-true sentinel, the reference's None. It has no Runs.
	All bool
	// Runs are the runs of true entries, ascending.
	Runs []ChunkRun
}

// MaxRuns is the largest number of runs of all masks of an answer: 256 KiB on the wire.
const MaxRuns = 32768

// NotStored is the Group of a mask of a group that is not kept in the store.
const NotStored = -1

// ChunkRun is the chunks from Start to End-1.
type ChunkRun struct{ Start, End int64 }

// At reports whether the entry of a chunk is true. It is false for chunks without an entry.
func (m GroupMask) At(chunk int64) bool {
	if m.All {
		return m.First <= chunk && chunk < m.End
	}
	i := sort.Search(len(m.Runs), func(i int) bool { return chunk < m.Runs[i].End })
	return i < len(m.Runs) && m.Runs[i].Start <= chunk
}

// Plan is a hit and what its tokens need.
type Plan struct {
	Hit Hit
	// Masks are the chunks to load for the hit, one mask for each group of the pool, in order.
	// They are empty if the hit is 0.
	Masks []GroupMask
}
