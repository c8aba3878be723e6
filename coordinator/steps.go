package coordinator

import "errors"

// search is a FindHit that may be suspended.
type search struct {
	suspended bool  // the next findHit goes on with it
	hit       int64 // the common hit so far
	passBegan int64 // the hit when the pass began
	group     int   // attention group that is next in the pass
}

// steps is the work that a search may still do, and where its runSearch goes on. A unit is
// about the cost of comparing one hash, 2 to 3 nanoseconds.
type steps struct {
	given     int  // work for this call
	left      int  // work that is left, at most 0 if all is used up
	suspended bool // the next runSearch goes on with the last one
	last      int  // block from which it goes on
}

// errSuspended is returned by a search whose work is used up. The package never returns it.
var errSuspended = errors.New("coordinator: suspended")

const (
	// finderWork is the work of a finder that has nothing to search.
	finderWork = 16
	// gapWork is the work of one round of a runSearch, beside that of reading its words.
	gapWork = 4
	// positionsPerUnit is how many positions of a bitset are read at the cost of a unit.
	positionsPerUnit = 128
)

// Work returns the work of the last AnswerSome, ExplainSome or FindHit, in units of comparing one
// hash.
func (s *Scratch) Work() int { return s.steps.given - s.steps.left }

// spend subtracts work. It returns false if none was left before. A finder without steps has
// no bound.
func (s *steps) spend(work int) bool {
	if s == nil {
		return true
	}
	if s.left <= 0 {
		return false
	}
	s.left -= work
	return true
}

// suspend records the block from which a runSearch goes on.
func (s *steps) suspend(last int) { s.suspended, s.last = true, last }

// resume returns the block from which a runSearch goes on: last if it was not suspended.
func (s *steps) resume(last int) int {
	if s == nil || !s.suspended {
		return last
	}
	s.suspended = false
	return s.last
}
