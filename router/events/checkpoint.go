package events

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/internal/parts"
)

// ErrCheckpoint is wrapped by the errors of a Checkpoint that cannot be resumed.
var ErrCheckpoint = errors.New("bad checkpoint")

// Checkpoint is where a Follower is between two batches: all that it knows except the blocks of its Holder. A
// Follower with Config.Resume begins there, over a Holder that has the blocks of that moment. A Checkpoint is
// not changed by its use, so it may be used again. It is safe for concurrent use.
type Checkpoint struct {
	Name     string `json:"name"`     // of the source
	NextSeq  uint64 `json:"next"`     // of the batch that is expected; 0 if none was applied
	Complete bool   `json:"complete"` // see Status

	// What follows are fields of tracker and applier, in JSON too.
	ExactCopies bool          `json:"exact_copies"`
	HasLast     bool          `json:"has_last"`
	AnyNext     bool          `json:"any_next"`
	Rank        int           `json:"rank"`
	Recent      []recentBatch `json:"recent"` // the valid ones, in the order of their numbers
	copies      copies
}

// NewCheckpoint returns that of a source that has applied no batch: a Follower begins anew there, and clears its Holder.
func NewCheckpoint(name string, exactCopies bool) *Checkpoint {
	return &Checkpoint{Name: name, ExactCopies: exactCopies, AnyNext: true, Rank: -1}
}

// checkpoint returns the state of t. The maps are copied: at most about 100 ms for maxCopied blocks twice.
func (t *tracker) checkpoint(name string) *Checkpoint {
	t.countDropped()
	c := &Checkpoint{
		Name: name, NextSeq: t.next, Complete: t.stats.Complete, ExactCopies: t.exactCopies,
		HasLast: t.hasLast, AnyNext: t.acceptAnySeq, Rank: t.rank, copies: t.copies.clone(),
	}
	for i := range uint64(numRecent) { // from the oldest on, if no number is missing
		if r := t.recent[(t.next+i)%numRecent]; r.valid {
			c.Recent = append(c.Recent, r)
		}
	}
	slices.SortFunc(c.Recent, func(a, b recentBatch) int { return cmp.Compare(a.Seq, b.Seq) })
	return c
}

// resume makes t, which is new, one that was at c and has lost its connection. The holder has the blocks of
// then. It fails with ErrCheckpoint.
func (t *tracker) resume(c *Checkpoint) error {
	if c.ExactCopies != t.exactCopies {
		return fmt.Errorf("%w: its copies were counted with ExactCopies %t", ErrCheckpoint, c.ExactCopies)
	}
	t.holder.SetStale(true)
	t.reason = "it begins at a checkpoint"
	if !c.HasLast { // then it held nothing
		t.holder.Clear()
	}
	t.stats.Complete = c.Complete
	t.hasLast, t.next, t.acceptAnySeq, t.rank = c.HasLast, c.NextSeq, c.AnyNext, c.Rank
	for _, r := range c.Recent {
		r.valid = true
		t.recent[r.Seq%numRecent] = r
	}
	t.copies.restore(&c.copies)
	if t.oneRemoval {
		t.copies.extra = nil
	}
	return nil
}

// Write writes the checkpoint for ReadCheckpoint: its fields in JSON, the groups and tiers of its copies in JSON, the
// keys of the extra copies with their numbers, and the keys of missing blocks.
func (c *Checkpoint) Write(w *parts.Writer) {
	w.JSON(c)
	w.Uvarint(uint64(c.copies.groupTiers.Len()))
	for i := range c.copies.groupTiers.list {
		w.JSON(&c.copies.groupTiers.list[i])
	}
	w.Uvarint(uint64(len(c.copies.extra)))
	for key, n := range c.copies.extra {
		w.Text(key)
		w.Uvarint(uint64(n))
	}
	w.Uvarint(uint64(len(c.copies.missing)))
	for key := range c.copies.missing {
		w.Text(key)
	}
	w.Bool(c.copies.missAny)
}

// ReadCheckpoint reads a checkpoint. What is wrong with it is an error of r, and the result is then of no use. Whatever r
// has, it allocates at most about 100 MB.
func ReadCheckpoint(r *parts.Reader) *Checkpoint {
	c := new(Checkpoint)
	r.JSON(c)
	c.copies.read(r)
	if r.Err() == nil && !c.isConsistent() {
		r.Fail("a checkpoint that no source can have")
	}
	return c
}

// isConsistent reports whether a tracker can be in this state.
func (c *Checkpoint) isConsistent() bool {
	n := len(c.Recent)
	if !c.HasLast {
		return n == 0 && c.NextSeq == 0
	}
	isAscending := slices.IsSortedFunc(c.Recent, func(a, b recentBatch) int { return cmp.Compare(a.Seq, b.Seq) })
	return !c.AnyNext && n > 0 && n <= numRecent && isAscending && c.Recent[n-1].Seq == c.NextSeq-1
}

// Bytes returns the memory that the checkpoint takes, about.
func (c *Checkpoint) Bytes() int64 {
	const batch = 24
	return int64(len(c.Recent))*batch + int64(c.copies.groupTiers.Len())*keyBytes + c.copies.used
}

func (c *copies) read(r *parts.Reader) {
	for i := range int(r.Uvarint(MaxGroupTiers)) {
		var at GroupTier
		r.JSON(&at)
		if number, err := c.groupTiers.FindOrAdd(at.Group, &at.Tier); err != nil || int(number) != i {
			r.Fail("group and tier %d are wrong", i)
			return
		}
	}
	c.extra = make(map[string]uint32)
	for range r.Uvarint(maxCopied) {
		c.extra[c.readKey(r)] = uint32(r.Uvarint(math.MaxUint32))
		if r.Err() != nil {
			return
		}
	}
	c.missing = make(map[string]struct{})
	for range r.Uvarint(maxCopied) {
		c.missing[c.readKey(r)] = struct{}{}
		if r.Err() != nil {
			return
		}
	}
	c.missAny = r.Bool()
}

// readKey reads a key, and counts its memory.
func (c *copies) readKey(r *parts.Reader) string {
	key := r.Text(2 + maxHashLen)
	if len(key) < 3 || int(binary.LittleEndian.Uint16([]byte(key))) >= c.groupTiers.Len() {
		r.Fail("a block without a hash, or without a group and tier")
	}
	if c.admit([]byte(key)); c.used > copiesBytes {
		r.Fail("copies of over %d bytes", copiesBytes)
	}
	return key
}
