package events

import "errors"

// ErrFull is the error of a Set that holds as many blocks as it may.
var ErrFull = errors.New("events: the source holds too many blocks")

// Set is a Holder in memory: the blocks of one source. Safe for concurrent use.
type Set struct{}

// NewSet returns an empty set, of at most maxBlocks blocks (0: DefaultMaxBlocks).
func NewSet(maxBlocks int) *Set { return &Set{} }

// Store implements Holder. It fails with ErrFull, having stored some of the blocks.
func (s *Set) Store(b *Blocks, held []bool) error { return nil }

// Remove implements Holder.
func (s *Set) Remove(b *Blocks) error { return nil }

// Clear implements Holder.
func (s *Set) Clear() {}

// SetStale implements Holder.
func (s *Set) SetStale(stale bool) {}

// Stale reports whether the source may have missed events.
func (s *Set) Stale() bool { return true }

// Len returns the number of blocks, stale or not.
func (s *Set) Len() int { return 0 }

// Contains reports whether a block is held, and not stale.
func (s *Set) Contains(group int, tier Tier, hash []byte) bool { return false }

// Each calls yield for all blocks in the order in which they were stored, stale or not. The
// Blocks are borrowed until it returns. No other method may be called meanwhile.
func (s *Set) Each(yield func(*Blocks) bool) {}
