package events

import (
	"encoding/binary"
	"maps"
	"slices"
)

const (
	// maxCopied bounds the blocks whose copies are counted, as Memory does for all sources. The copies of further
	// blocks are not counted, so the first removal removes them: that is too little, never too much.
	maxCopied = 1 << 18
	// keyBytes is what a key of a map takes besides its bytes.
	keyBytes = 64
	// copiesStep is how much memory copies take at a time.
	copiesStep = 16 << 10
)

// copies counts the further copies of blocks: an engine with two copies of a block removes it
// twice. Blocks with one copy take no memory. The zero value is empty. Not safe for concurrent
// use.
type copies struct {
	groupTiers GroupTiers        // of all blocks, with copies or not
	extra      map[string]uint32 // number of group and tier, and hash: copies beyond the first
	// missing are blocks that the engine may cache though they are not held, see isMaybeCached.
	missing map[string]struct{} // number of group and tier, and hash
	missAny bool                // there was no memory for another one

	memory      share    // of Memory; of nothing there is no bound
	used, taken int64    // bytes of the keys, and of memory for them
	key         []byte   // reused
	match       []uint32 // reused
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
	if !counted && (len(c.extra) >= maxCopied || !c.admit(key)) {
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
			c.drop(c.keyOf(groupTier, hash))
		}
		return false
	}
	key := c.keyOf(c.match[0], hash)
	switch n := c.extra[string(key)]; n {
	case 0:
		return false
	case 1:
		c.drop(key)
	default:
		c.extra[string(key)] = n - 1
	}
	return true
}

// set sets how many copies of a block remain, and reports whether it stays: not if there is none, nor if several groups or
// tiers may be meant.
func (c *copies) set(group int, tier *Tier, hash []byte, n uint32) (stays bool) {
	c.match = c.groupTiers.appendMatching(c.match[:0], group, tier)
	for _, groupTier := range c.match {
		c.drop(c.keyOf(groupTier, hash))
	}
	stays = n > 0 && len(c.match) == 1
	if stays && n > 1 {
		key := c.keyOf(c.match[0], hash)
		if c.extra == nil {
			c.extra = make(map[string]uint32)
		}
		if len(c.extra) < maxCopied && c.admit(key) {
			c.extra[string(key)] = n - 1
		}
	}
	return stays
}

// addMaybeCached records that the engine may cache a block that is not held or will not be: it has a copy that is
// not counted, or was taken for one that is not cached. addGroupTier has recorded its group and tier.
func (c *copies) addMaybeCached(group int, tier *Tier, hash []byte) {
	groupTier, known := c.groupTiers.Find(group, tier)
	if !known || c.missAny {
		return
	}
	if c.missing == nil {
		c.missing = make(map[string]struct{})
	}
	key := c.keyOf(groupTier, hash)
	if _, recorded := c.missing[string(key)]; recorded {
		return
	}
	if c.missAny = len(c.missing) >= maxCopied || !c.admit(key); !c.missAny {
		c.missing[string(key)] = struct{}{}
	}
}

// admit counts the memory of one more key, and reports whether there is enough.
func (c *copies) admit(key []byte) bool {
	n := int64(len(key)) + keyBytes
	if c.memory.of != nil && c.used+n > c.taken {
		if !c.memory.take(copiesStep) {
			return false
		}
		c.taken += copiesStep
	}
	c.used += n
	return true
}

// drop removes a key of extra, if it is there.
func (c *copies) drop(key []byte) {
	if _, ok := c.extra[string(key)]; ok {
		delete(c.extra, string(key))
		c.used -= int64(len(key)) + keyBytes
	}
}

// isMaybeCached reports whether the engine may cache a block that is not held. Once one could not be recorded, it may be any.
func (c *copies) isMaybeCached(group int, tier *Tier, hash []byte) bool {
	if c.missAny {
		return true
	}
	groupTier, known := c.groupTiers.Find(group, tier)
	if !known {
		return false
	}
	_, missing := c.missing[string(c.keyOf(groupTier, hash))]
	return missing
}

// clearTier removes what is known of the blocks in all groups and tiers that a removal from a tier may mean.
func (c *copies) clearTier(tier *Tier) {
	c.match = c.groupTiers.appendMatching(c.match[:0], NoGroup, tier)
	isIn := func(key string) bool { return slices.Contains(c.match, uint32(key[0])|uint32(key[1])<<8) }
	for key := range c.extra {
		if isIn(key) {
			c.drop([]byte(key))
		}
	}
	for key := range c.missing {
		if isIn(key) {
			delete(c.missing, key)
			c.used -= int64(len(key)) + keyBytes
		}
	}
}

// reset removes all counts.
func (c *copies) reset() {
	if c.taken > 0 {
		c.memory.release(c.taken)
	}
	*c = copies{memory: share{of: c.memory.of}}
}

// clone returns a copy that shares nothing that changes, and takes nothing of Memory.
func (c *copies) clone() copies {
	return copies{
		groupTiers: c.groupTiers.clone(), extra: maps.Clone(c.extra), missing: maps.Clone(c.missing), missAny: c.missAny, used: c.used,
	}
}

// restore makes c, which is empty, a clone of from. Without memory for all counts it has none.
func (c *copies) restore(from *copies) {
	memory := c.memory
	if *c = from.clone(); memory.of != nil && !memory.take(c.used) {
		c.extra, c.missing, c.missAny, c.used = nil, nil, true, 0
	}
	if c.memory = memory; memory.of != nil {
		c.taken = c.used
	}
}
