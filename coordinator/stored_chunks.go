package coordinator

// StoredChunks are the chunks of one store group that a store of a prompt keeps. Chunks are
// numbered from the beginning of the prompt; chunk i is keyed by raw hash
// KeyIndex(i, Stride(g)). The zero value has none. It is an immutable value whose
// size does not depend on the prompt.
type StoredChunks struct {
	mask  Mask
	first int64 // chunks before it are left out
}

// StoredChunks returns, for each store group, the chunks of the first numTokens tokens that are
// stored: those that StoreMask keeps. Chunks that end at or before startToken are left out: they
// have been stored before. One that startToken cuts has not, though StoreMask with that start
// leaves it out. numTokens and startToken are rounded down to a multiple of Alignment, so that a
// call goes on where an earlier one with numTokens as its startToken has ended. promptTokens is
// as for StoreMask. The result is appended to dst[:0]. It fails as StoreMask does.
func (c *Coordinator) StoredChunks(dst []StoredChunks, numTokens, startToken, promptTokens int64) ([]StoredChunks, error) {
	masks, err := c.StoreMask(floorTo(max(0, numTokens), c.align), 0, promptTokens)
	if err != nil {
		return nil, err
	}
	dst, first := dst[:0], floorTo(max(0, startToken), c.align)
	for g := range c.groups {
		state := &c.groups[g]
		dst = append(dst, StoredChunks{mask: masks[state.poolGroup], first: first / int64(state.BlockSize)})
	}
	return dst, nil
}

// Next returns the first run [start, end) of stored chunks with start at or after a chunk. If
// the chunk is inside a run, start is the chunk. ok is false if there is none.
func (s *StoredChunks) Next(chunk int64) (start, end int64, ok bool) {
	return s.mask.Next(max(chunk, s.first))
}

// Has reports whether a chunk is stored.
func (s *StoredChunks) Has(chunk int64) bool { return chunk >= s.first && s.mask.At(chunk) }

// StoresStates reports whether of store group g no chunk is stored, but the states that the
// engine names: those of mamba groups from 0.29.0 on.
func (c *Coordinator) StoresStates(g int) bool {
	return c.groups[g].Kind == Mamba && c.rules.mambaStore == mambaStoreNone
}
