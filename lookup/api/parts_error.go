package api

import (
	"errors"
	"fmt"
)

// ErrPartlyDone is wrapped by the error of a store, an evict, a store of a prompt or a reset that
// has failed when a part of it was done. Without it, an error means that nothing was changed, unless
// a store behind the service did not answer.
var ErrPartlyDone = errors.New("done in part")

// MaxParts bounds the parts that a PartsError lists: some 16 KiB in JSON.
const MaxParts = 64

// PartsError is the error of a store of a prompt if parts of it were not stored. All other
// parts are. It wraps ErrPartlyDone.
type PartsError struct {
	Parts []Part
	More  int // further parts that are not listed
	// Cause is the first part's error, nil if a server has told the parts.
	Cause error
}

// Part is what one rank of a group was to store and does not hold.
type Part struct {
	Group      int    `json:"group"` // store group
	TPRank     int    `json:"tp_rank"`
	PPRank     int    `json:"pp_rank"`
	PCPRank    int    `json:"pcp_rank"`
	FirstChunk int64  `json:"first_chunk"` // from the beginning of the prompt
	Chunks     int64  `json:"chunks"`      // how many, states included
	Error      string `json:"error"`
}

// Add adds a part, or counts it if MaxParts are listed.
func (e *PartsError) Add(p Part, cause error) {
	if len(e.Parts) == 0 {
		e.Cause = cause
	}
	if len(e.Parts) == MaxParts {
		e.More++
		return
	}
	p.Error = cause.Error()
	e.Parts = append(e.Parts, p)
}

// Error implements error.
func (e *PartsError) Error() string {
	if len(e.Parts) == 0 {
		return "no part of the prompt failed"
	}
	p := &e.Parts[0]
	return fmt.Sprintf("%d parts of the prompt were not stored, the first is group %d, tp_rank %d, pp_rank %d, pcp_rank %d, %d chunks from %d on: %s",
		len(e.Parts)+e.More, p.Group, p.TPRank, p.PPRank, p.PCPRank, p.Chunks, p.FirstChunk, p.Error)
}

// Unwrap returns ErrPartlyDone, and Cause if there is one.
func (e *PartsError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrPartlyDone}
	}
	return []error{ErrPartlyDone, e.Cause}
}
