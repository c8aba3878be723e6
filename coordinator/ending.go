package coordinator

// Ending says where the blocks end that a lookup has found, and which block ended its hit: what an account of lost tokens
// needs beside the hit.
type Ending struct {
	// Failed is set if the store has not answered: the hit says nothing.
	Failed bool
	// Found is how many leading raw hashes of the prompt are of blocks that every full-attention group holds, those before the
	// start included. In a pool without such a group they are those before the hit.
	Found int
	// Hash is a raw hash of the block that ends the hit, and Group the group that lacks it, if that is no full-attention group.
	// Otherwise Group is -1: the block behind Found ends the hit.
	Hash, Group int
}

// nothingFound returns the ending of a lookup for which no block is looked up.
func (c *Coordinator) nothingFound(hashes Hashes) Ending {
	return Ending{Found: int(hashes.Start() / int64(c.pool.HashBlockSize)), Group: -1}
}

// Ending returns the ending of a hit that Answer has returned for p, which must have the bits up to the first gap of the
// full-attention groups. s is overwritten. It allocates nothing unless a group without full attention ends the hit.
func (c *Coordinator) Ending(p *Presence, hit Hit, numTokens int64, s *Scratch) Ending {
	tokens := max(hit.Tokens, p.Start)
	e := Ending{Found: int(min(tokens/int64(c.pool.HashBlockSize), int64(p.NumHashes))), Group: -1}
	if c.pool.CapacityOnly || !c.attention[0].Kind.IsFull() {
		return e
	}
	return c.endingOf(p, max(e.Found, c.leadingHashes(p)), tokens, numTokens, s)
}

// ending is Coordinator.Ending for the lookup, which has answered.
func (l *storeLookup) ending(hit Hit, numTokens int64) Ending {
	c, p := l.c, &l.presence
	tokens := max(hit.Tokens, p.Start)
	e := Ending{Found: int(min(tokens/int64(c.pool.HashBlockSize), int64(p.NumHashes))), Group: -1}
	if !c.attention[0].Kind.IsFull() {
		return e
	}
	onRead := p.onRead
	p.onRead = nil // nothing more is asked
	defer func() { p.onRead = onRead }()
	found := c.leadingHashes(p)
	for g := range c.groups {
		if c.groups[g].Kind.IsFull() { // undetermined positions are set
			found = min(found, (c.FirstPosition(g, p.Start)+firstBit(l.undetermined[g]))*c.KeyStride(g))
		}
	}
	return c.endingOf(p, max(e.Found, found), tokens, numTokens, &l.scratch)
}

// leadingHashes returns how many leading raw hashes are of blocks that every full-attention group holds.
func (c *Coordinator) leadingHashes(p *Presence) int {
	found := p.NumHashes
	for i := range c.attention {
		if a := &c.attention[i]; a.Kind.IsFull() {
			v := a.view(p)
			found = min(found, v.leadingBlocks(p.NumHashes/a.stride, a.chunkPositions)*a.stride)
		}
	}
	return found
}

// endingOf returns the ending of a hit whose full-attention groups have found leading raw hashes.
func (c *Coordinator) endingOf(p *Presence, found int, hit, numTokens int64, s *Scratch) Ending {
	e := Ending{Found: found, Group: -1}
	if c.allFull || int64(found)*int64(c.pool.HashBlockSize) <= hit { // no pool could give more
		return e
	}
	if limit := c.PrefixHit(numTokens, p.NumHashes, found, s); limit > hit {
		e.Hash, e.Group = c.endingBlock(p, limit, numTokens)
	}
	return e
}

// PrefixHit returns the hit in tokens of a pool that holds exactly the first n of a prompt's raw hashes, in all groups and on
// all ranks. s is overwritten.
func (c *Coordinator) PrefixHit(numTokens int64, numHashes, n int, s *Scratch) int64 {
	p := Presence{NumHashes: numHashes, Start: int64(n) * int64(c.pool.HashBlockSize), Bits: c.noBits}
	hit, err := c.Answer(&p, numTokens, s)
	if err != nil {
		return 0 // the lookup itself has failed
	}
	return hit.Tokens
}

// endingBlock returns the block that ends a hit which could be limit, and the group that lacks it: of those without full
// attention the one whose own hit is least. It returns group -1 if none lacks a block.
func (c *Coordinator) endingBlock(p *Presence, limit, numTokens int64) (hash, group int) {
	least, group := limit, -1
	for g := range c.groups {
		if c.groups[g].Kind.IsFull() {
			continue
		}
		end := GroupEnd{Group: g, Kind: c.groups[g].Kind, FirstMissing: -1}
		if err := c.explainGroup(&end, p, p, limit, numTokens); err != nil || end.FirstMissing < 0 || end.EndTokens >= least {
			continue
		}
		least, group = end.EndTokens, g
		stride := int64(c.attention[c.groups[g].attention].stride)
		hash = int((end.FirstMissing+1)*stride - 1)
	}
	return hash, group
}
