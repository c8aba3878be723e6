package events

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// A checkpoint is encoded as follows. uvarint and varint are those of encoding/binary, other integers are
// little-endian, and text is a uvarint length and bytes. It has no checksum: who keeps it adds one.
//
//	version  u8
//	flags    u8
//	name     text
//	next     uvarint
//	rank     varint
//	recent   uvarint count, then for each: uvarint next-seq | hash u64      ascending numbers
//	tiers    uvarint count, then for each: varint group | medium, locality, ownership text
//	extra    uvarint count, then for each: block | uvarint copies           ascending keys
//	missing  uvarint count, then for each: block                            ascending keys
//	block    uvarint number of its group and tier | uvarint length, hash
const checkpointVersion = 1

// Flags of a checkpoint.
const (
	checkpointComplete = 1 << iota
	checkpointExactCopies
	checkpointHasLast
	checkpointAnyNext
	checkpointFlags = 1<<iota - 1 // all
)

// MaxCheckpointLen bounds an encoded checkpoint, in bytes: nearly all of it are maxCopied blocks with further
// copies and as many missing ones, of 64 bytes.
const MaxCheckpointLen = 40 << 20

const _ uint = MaxCheckpointLen - 1<<10 - MaxName - numRecent*18 - MaxGroupTiers*(3+3*(MaxName+2)) -
	maxCopied*2*(2+1+maxHashLen+5)

// AppendBinary appends the encoded checkpoint to b: at most MaxCheckpointLen bytes. It does
// not fail.
func (c *Checkpoint) AppendBinary(b []byte) ([]byte, error) {
	var flags byte
	for i, set := range []bool{c.Complete, c.exactCopies, c.hasLast, c.anyNext} {
		if set {
			flags |= 1 << i
		}
	}
	b = appendText(append(b, checkpointVersion, flags), c.Name)
	b = binary.AppendUvarint(b, c.NextSeq)
	b = binary.AppendVarint(b, int64(c.rank))
	b = binary.AppendUvarint(b, uint64(len(c.recent)))
	for _, r := range c.recent {
		b = binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, c.NextSeq-r.seq), r.hash)
	}
	b = binary.AppendUvarint(b, uint64(c.copies.groupTiers.Len()))
	for i := range c.copies.groupTiers.list {
		at := &c.copies.groupTiers.list[i]
		b = binary.AppendVarint(b, int64(at.Group))
		for _, text := range []string{at.Tier.Medium, at.Tier.Locality, at.Tier.Ownership} {
			b = appendText(b, text)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(c.copies.extra)))
	for _, key := range slices.Sorted(maps.Keys(c.copies.extra)) {
		b = binary.AppendUvarint(appendBlock(b, key), uint64(c.copies.extra[key]))
	}
	b = binary.AppendUvarint(b, uint64(len(c.copies.missing)))
	for _, key := range slices.Sorted(maps.Keys(c.copies.missing)) {
		b = appendBlock(b, key)
	}
	return b, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendBlock appends a key of copies: 2 bytes for the number of the group and tier, and the hash.
func appendBlock(b []byte, key string) []byte {
	b = binary.AppendUvarint(b, uint64(binary.LittleEndian.Uint16([]byte(key))))
	return appendText(b, key[2:])
}

// UnmarshalBinary sets c to what AppendBinary has encoded. It fails with ErrCheckpoint and leaves c unchanged.
// Whatever the bytes are, it allocates at most some 100 MB.
func (c *Checkpoint) UnmarshalBinary(b []byte) error {
	r := checkpointReader{b: b}
	version, flags := r.byte(), r.byte()
	if version != checkpointVersion && !r.bad {
		return fmt.Errorf("%w: it has version %d, and this program reads version %d", ErrCheckpoint, version, checkpointVersion)
	}
	read := Checkpoint{
		Complete: flags&checkpointComplete != 0, exactCopies: flags&checkpointExactCopies != 0,
		hasLast: flags&checkpointHasLast != 0, anyNext: flags&checkpointAnyNext != 0,
		Name: r.text(MaxName), NextSeq: r.uvarint(1<<64 - 1),
	}
	read.rank = r.varint(-1, 1<<31-1)
	read.recent = r.recent(read.NextSeq)
	r.groupTiers(&read.copies.groupTiers)
	r.extra(&read.copies)
	r.missing(&read.copies)
	if r.bad || len(r.b) > 0 || flags&^byte(checkpointFlags) != 0 || !read.consistent() {
		return fmt.Errorf("%w: %d bytes that cannot be read", ErrCheckpoint, len(b))
	}
	*c = read
	return nil
}

// consistent reports whether a tracker can be in this state.
func (c *Checkpoint) consistent() bool {
	n := len(c.recent)
	if !c.hasLast {
		return n == 0 && c.NextSeq == 0
	}
	return !c.anyNext && n > 0 && c.recent[n-1].seq == c.NextSeq-1
}

// checkpointReader takes the fields of a checkpoint off the front of b. It is bad once one was missing or out of
// bounds.
type checkpointReader struct {
	b   []byte
	bad bool
}

// take returns the next n bytes, nil if there are fewer.
func (r *checkpointReader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *checkpointReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uvarint returns the next uvarint, which is to be at most limit.
func (r *checkpointReader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.bad = true
		return 0
	}
	r.take(n)
	return v
}

// varint returns the next varint, which is to be from low to high.
func (r *checkpointReader) varint(low, high int64) int {
	v, n := binary.Varint(r.b)
	if n <= 0 || v < low || v > high {
		r.bad = true
		return 0
	}
	r.take(n)
	return int(v)
}

func (r *checkpointReader) text(limit uint64) string { return string(r.take(int(r.uvarint(limit)))) }

// recent returns the batches that were applied before next. Each has a slot of its own.
func (r *checkpointReader) recent(next uint64) (list []recentBatch) {
	var used [numRecent]bool
	for range r.uvarint(numRecent) {
		before, hash := r.uvarint(next), r.take(8)
		seq := next - before
		if r.bad || before == 0 || used[seq%numRecent] || len(list) > 0 && seq <= list[len(list)-1].seq {
			r.bad = true
			return nil
		}
		used[seq%numRecent] = true
		list = append(list, recentBatch{seq: seq, hash: binary.LittleEndian.Uint64(hash), valid: true})
	}
	return list
}

// groupTiers numbers the groups and tiers as they were.
func (r *checkpointReader) groupTiers(t *GroupTiers) {
	for i := range int(r.uvarint(MaxGroupTiers)) {
		group := r.varint(NoGroup, maxGroup)
		tier := Tier{Medium: r.text(MaxName), Locality: r.text(MaxName), Ownership: r.text(MaxName)}
		if r.bad {
			return
		}
		if number, err := t.FindOrAdd(group, &tier); err != nil || int(number) != i {
			r.bad = true
			return
		}
	}
}

// block returns the next key of copies. It is to be greater than last.
func (r *checkpointReader) block(t *GroupTiers, last string) string {
	at := r.uvarint(MaxGroupTiers)
	hash := r.text(maxHashLen)
	key := string(binary.LittleEndian.AppendUint16(nil, uint16(at))) + hash
	if at >= uint64(t.Len()) || hash == "" || key <= last {
		r.bad = true
	}
	return key
}

func (r *checkpointReader) extra(c *copies) {
	last := ""
	for range r.uvarint(maxCopied) {
		key := r.block(&c.groupTiers, last)
		n := r.uvarint(1<<32 - 1)
		if r.bad || n == 0 {
			r.bad = true
			return
		}
		if c.extra == nil {
			c.extra = make(map[string]uint32)
		}
		c.extra[key], last = uint32(n), key
	}
}

func (r *checkpointReader) missing(c *copies) {
	last := ""
	for range r.uvarint(maxCopied) {
		key := r.block(&c.groupTiers, last)
		if r.bad {
			return
		}
		if c.missing == nil {
			c.missing = make(map[string]struct{})
		}
		c.missing[key], last = struct{}{}, key
	}
}
