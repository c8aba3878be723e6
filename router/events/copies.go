package events

import "encoding/binary"

// maxCopied bounds the blocks whose copies are counted: at most about 40 MB. The copies of
// further blocks are not counted, so the first removal removes them: that is too little, never
// too much.
const maxCopied = 1 << 18

// copies counts the further copies of blocks: an engine with two copies of a block removes it
// twice. Blocks with one copy take no memory. The zero value is empty. Not safe for concurrent
// use.
type copies struct {
	groupTiers GroupTiers        // of all blocks, with copies or not
	extra      map[string]uint32 // number of group and tier, and hash: copies beyond the first
	// missing are blocks that the engine may cache though they are not held, see mayMiss.
	missing map[string]struct{} // number of group and tier, and hash
	key     []byte              // reused
	match   []uint32            // reused
}

func (c *copies) keyOf(groupTier uint32, hash []byte) []byte {
	c.key = append(binary.LittleEndian.AppendUint16(c.key[:0], uint16(groupTier)), hash...)
	return c.key
}

// addGroupTier records where blocks are stored: a removal that may mean two tiers must find both. It
// fails with ErrTiers.
func (c *copies) addGroupTier(group int, tier *Tier) error {
	_, err := c.groupTiers.FindOrAdd(group, tier)
	return err
}

// add counts one more copy of a block, in a group and tier that addGroupTier has recorded.
func (c *copies) add(group int, tier *Tier, hash []byte) {
	groupTier, known := c.groupTiers.Find(group, tier)
	if !known {
		return
	}
	key := c.keyOf(groupTier, hash)
	n, counted := c.extra[string(key)]
	if !counted && len(c.extra) >= maxCopied {
		return
	}
	if c.extra == nil {
		c.extra = make(map[string]uint32)
	}
	if n < 1<<32-1 {
		c.extra[string(key)] = n + 1
	}
}

// remove removes one copy of a block that has further ones, and reports whether it had. A
// removal that may mean several tiers removes all copies in them and reports false.
func (c *copies) remove(group int, tier *Tier, hash []byte) bool {
	if len(c.extra) == 0 {
		return false
	}
	c.match = c.groupTiers.appendMatching(c.match[:0], group, tier)
	if exact := group != NoGroup && tier.Medium != "" && len(c.match) == 1; !exact {
		for _, groupTier := range c.match {
			delete(c.extra, string(c.keyOf(groupTier, hash)))
		}
		return false
	}
	key := c.keyOf(c.match[0], hash)
	switch n := c.extra[string(key)]; n {
	case 0:
		return false
	case 1:
		delete(c.extra, string(key))
	default:
		c.extra[string(key)] = n - 1
	}
	return true
}

// recordMissing records that the engine may cache a block that is not held or will not be: it has a copy that is
// not counted, or was taken for one that is not cached. addGroupTier has recorded its group and tier.
func (c *copies) recordMissing(group int, tier *Tier, hash []byte) {
	groupTier, known := c.groupTiers.Find(group, tier)
	if !known || len(c.missing) >= maxCopied {
		return
	}
	if c.missing == nil {
		c.missing = make(map[string]struct{})
	}
	c.missing[string(c.keyOf(groupTier, hash))] = struct{}{}
}

// mayMiss reports whether the engine may cache a block that is not held. Once maxCopied blocks were
// recorded, it may be any.
func (c *copies) mayMiss(group int, tier *Tier, hash []byte) bool {
	if len(c.missing) >= maxCopied {
		return true
	}
	groupTier, known := c.groupTiers.Find(group, tier)
	if !known {
		return false
	}
	_, missing := c.missing[string(c.keyOf(groupTier, hash))]
	return missing
}

// reset removes all counts.
func (c *copies) reset() { *c = copies{} }
