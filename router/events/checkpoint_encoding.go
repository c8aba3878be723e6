package events

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/hitline/hitline/internal/parts"
)

// Write writes the checkpoint for ReadCheckpoint:
//
//	name, next, complete, exact copies, has last, any next, rank
//	recent batches, then of each: next less its number, hash (fixed); ascending numbers
//	groups and tiers, then of each: group, medium, locality, ownership
//	extra copies, then of each: block, copies; ascending blocks
//	missing blocks, then of each: block; ascending blocks
//	whether any other block may be missing
//
// A block is the number of its group and tier, and its hash.
func (c *Checkpoint) Write(w *parts.Writer) {
	w.Text(c.Name)
	w.Uvarint(c.NextSeq)
	for _, flag := range []bool{c.Complete, c.exactCopies, c.hasLast, c.anyNext} {
		w.Bool(flag)
	}
	w.Int(c.rank)
	w.Uvarint(uint64(len(c.recent)))
	for _, r := range c.recent {
		w.Uvarint(c.NextSeq - r.seq)
		w.Fixed64(r.hash)
	}
	w.Uvarint(uint64(c.copies.groupTiers.Len()))
	for i := range c.copies.groupTiers.list {
		c.copies.groupTiers.list[i].Write(w)
	}
	w.Uvarint(uint64(len(c.copies.extra)))
	for _, key := range slices.Sorted(maps.Keys(c.copies.extra)) {
		writeBlock(w, key)
		w.Uvarint(uint64(c.copies.extra[key]))
	}
	w.Uvarint(uint64(len(c.copies.missing)))
	for _, key := range slices.Sorted(maps.Keys(c.copies.missing)) {
		writeBlock(w, key)
	}
	w.Bool(c.copies.missAny)
}

// Write writes a group and a tier for ReadGroupTier.
func (g *GroupTier) Write(w *parts.Writer) {
	w.Int(g.Group)
	w.Text(g.Tier.Medium)
	w.Text(g.Tier.Locality)
	w.Text(g.Tier.Ownership)
}

// ReadGroupTier reads a group and a tier.
func ReadGroupTier(r *parts.Reader) GroupTier {
	return GroupTier{
		Group: r.Int(NoGroup, maxGroup), Tier: Tier{Medium: r.Text(MaxName), Locality: r.Text(MaxName), Ownership: r.Text(MaxName)},
	}
}

// writeBlock writes a key of copies: 2 bytes for the number of the group and tier, and the hash.
func writeBlock(w *parts.Writer, key string) {
	w.Uvarint(uint64(binary.LittleEndian.Uint16([]byte(key))))
	w.Text(key[2:])
}

// ReadCheckpoint reads a checkpoint. What is wrong with it is an error of r, and the result is then of no use. Whatever r
// has, it allocates at most about 100 MB.
func ReadCheckpoint(r *parts.Reader) *Checkpoint {
	c := &Checkpoint{Name: r.Text(MaxName), NextSeq: r.Uvarint(math.MaxUint64)}
	for _, flag := range []*bool{&c.Complete, &c.exactCopies, &c.hasLast, &c.anyNext} {
		*flag = r.Bool()
	}
	c.rank = r.Int(-1, math.MaxInt32)
	c.readRecent(r)
	c.copies.read(r)
	if r.Err() == nil && !c.consistent() {
		r.Fail("a checkpoint that no source can have")
	}
	return c
}

// Bytes returns the memory that the checkpoint takes, about.
func (c *Checkpoint) Bytes() int64 {
	const batch = 24
	return int64(len(c.recent))*batch + int64(c.copies.groupTiers.Len())*keyBytes + c.copies.used
}

// consistent reports whether a tracker can be in this state.
func (c *Checkpoint) consistent() bool {
	n := len(c.recent)
	if !c.hasLast {
		return n == 0 && c.NextSeq == 0
	}
	return !c.anyNext && n > 0 && c.recent[n-1].seq == c.NextSeq-1
}

// readRecent reads the batches that were applied last. Each has an element of tracker.recent of its own.
func (c *Checkpoint) readRecent(r *parts.Reader) {
	var used [numRecent]bool
	for range r.Uvarint(numRecent) {
		before, hash := r.Uvarint(c.NextSeq), r.Fixed64()
		seq, n := c.NextSeq-before, len(c.recent)
		if before == 0 || used[seq%numRecent] || n > 0 && seq <= c.recent[n-1].seq {
			r.Fail("batch %d is out of order", seq)
			return
		}
		used[seq%numRecent] = true
		c.recent = append(c.recent, recentBatch{seq: seq, hash: hash, valid: true})
	}
}

func (c *copies) read(r *parts.Reader) {
	for i := range int(r.Uvarint(MaxGroupTiers)) {
		at := ReadGroupTier(r)
		if number, err := c.groupTiers.FindOrAdd(at.Group, &at.Tier); err != nil || int(number) != i {
			r.Fail("group and tier %d are wrong", i)
			return
		}
	}
	last := ""
	for range r.Uvarint(maxCopied) {
		key := c.readBlock(r, last)
		n := r.Uvarint(math.MaxUint32)
		if n == 0 {
			r.Fail("a block without copies")
			return
		}
		if c.extra == nil {
			c.extra = make(map[string]uint32)
		}
		c.extra[key], last = uint32(n), key
	}
	last = ""
	for range r.Uvarint(maxCopied) {
		key := c.readBlock(r, last)
		if r.Err() != nil {
			return
		}
		if c.missing == nil {
			c.missing = make(map[string]struct{})
		}
		c.missing[key], last = struct{}{}, key
	}
	c.missAny = r.Bool()
}

// readBlock reads a key of copies. It is to be greater than last.
func (c *copies) readBlock(r *parts.Reader, last string) string {
	at, hash := r.Uvarint(MaxGroupTiers), r.Text(maxHashLen)
	key := string(binary.LittleEndian.AppendUint16(nil, uint16(at))) + hash
	c.admit([]byte(key))
	switch {
	case at >= uint64(c.groupTiers.Len()) || hash == "" || key <= last:
		r.Fail("a block is out of order, or has no group and tier")
	case c.used > copiesBytes:
		r.Fail("copies of over %d bytes", copiesBytes)
	}
	return key
}
