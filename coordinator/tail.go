package coordinator

import "github.com/hitline/hitline/internal/requesterror"

// TailBoundary names the block that ends at a hit in one group. Its key is that of the raw
// hash that ends at token Tokens, which lies behind the hit if the block was stored under a
// later hash of the same chunk.
type TailBoundary struct {
	Group  int   // store group
	Tokens int64 // a multiple of the hash block size, not below the hit
}

// Hit is the answer to a lookup.
type Hit struct {
	Tokens int64 // leading tokens that are in the store and loadable
	// TailBoundaries has one element for each store group, in order. It is empty if the hit
	// is 0 or the release has none.
	TailBoundaries []TailBoundary
}

// HasTailBoundaries reports whether hits have tail boundaries: from 0.29.0 on.
func (c *Coordinator) HasTailBoundaries() bool { return c.rules.tailBoundaries }

// appendTailBoundaries appends the tail boundaries of a hit that is not 0. It fails with
// ErrPrecondition if a group has no block there, and with ErrIndexOutOfRange if the request
// has no hash there: chunked local attention can end a hit with a block that it has not
// read. (Reference: the worker's lookup, tail_key_boundaries.)
func (c *Coordinator) appendTailBoundaries(dst []TailBoundary, p *Presence, hit int64) ([]TailBoundary, error) {
	for g := range c.groups {
		tokens, err := c.tailBoundary(g, p, hit)
		if err != nil {
			return nil, err
		}
		dst = append(dst, TailBoundary{Group: g, Tokens: tokens})
	}
	return dst, nil
}

// tailBoundary returns the tokens of group g's tail boundary.
func (c *Coordinator) tailBoundary(g int, p *Presence, hit int64) (int64, error) {
	if last := hit/int64(c.pool.HashBlockSize) - 1; last >= int64(p.NumHashes) {
		return 0, requesterror.New(ErrIndexOutOfRange, "hashes %d to %d are missing: the hit of %d tokens ends there; send the hashes of all whole blocks of num_tokens",
			p.NumHashes, last, hit)
	}
	block, position := int64(c.groups[g].BlockSize), int64(c.KeyStride(g)*c.pool.HashBlockSize)
	v := c.attention[c.groups[g].attention].view(p)
	if v.members = c.groups[g].self[:]; !p.Everything {
		v.before = &c.groups[g].before
	}
	first := int(hit/position) - 1
	last := first
	if c.fineGrained {
		last = int(min(ceilDiv(hit, block)*block/position, int64(p.NumHashes))) - 1
	}
	for i := first; i <= last; i++ {
		if v.has(i) {
			return int64(i+1) * position, nil
		}
	}
	return 0, requesterror.New(ErrPrecondition, "group %d has no block that ends at the hit of %d tokens", g, hit)
}
