package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrCheckpoint is wrapped by the errors of a Checkpoint that cannot be resumed.
var ErrCheckpoint = errors.New("events: bad checkpoint")

// Checkpoint is where a Follower is between two batches: all that it knows except the blocks of its Holder. A
// Follower with Config.Resume begins there, over a Holder that has the blocks of that moment. A Checkpoint is
// not changed by its use, so it may be used again. It is safe for concurrent use.
type Checkpoint struct {
	Name     string // of the source
	NextSeq  uint64 // of the batch that is expected; 0 if none was applied
	Complete bool   // see Status

	// What follows are fields of tracker and applier.
	exactCopies bool
	hasLast     bool
	anyNext     bool
	rank        int
	recent      []recentBatch // the valid ones, in the order of their numbers
	copies      copies
}

// checkpoint returns the state of t. The maps are copied: at most about 100 ms for maxCopied blocks twice.
func (t *tracker) checkpoint(name string) *Checkpoint {
	_ = t.report()
	c := &Checkpoint{
		Name: name, NextSeq: t.next, Complete: t.stats.Complete, exactCopies: t.exactCopies,
		hasLast: t.hasLast, anyNext: t.anyNext, rank: t.rank, copies: t.copies.clone(),
	}
	for i := range uint64(numRecent) { // from the oldest on, if no number is missing
		if r := t.recent[(t.next+i)%numRecent]; r.valid {
			c.recent = append(c.recent, r)
		}
	}
	slices.SortFunc(c.recent, func(a, b recentBatch) int { return cmp.Compare(a.seq, b.seq) })
	return c
}

// resume makes t, which is new, one that was at c and has lost its connection. The holder has the blocks of
// then. It fails with ErrCheckpoint.
func (t *tracker) resume(c *Checkpoint) error {
	if c.exactCopies != t.exactCopies {
		return fmt.Errorf("%w: its copies were counted with ExactCopies %t", ErrCheckpoint, c.exactCopies)
	}
	t.holder.SetStale(true)
	t.reason = "it begins at a checkpoint"
	if !c.hasLast { // then it held nothing
		t.holder.Clear()
	}
	t.stats.Complete = c.Complete
	t.hasLast, t.next, t.anyNext, t.rank = c.hasLast, c.NextSeq, c.anyNext, c.rank
	for _, r := range c.recent {
		t.recent[r.seq%numRecent] = r
	}
	t.copies.restore(&c.copies)
	if t.oneRemoval {
		t.copies.extra = nil
	}
	return nil
}
