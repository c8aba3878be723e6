package api

import (
	"encoding/json"
	"fmt"
)

// MaxParts bounds the parts that a PartsError lists: some 16 KiB in JSON.
const MaxParts = 64

// PartsError is the error of a store of a prompt if parts of it were not stored. All other
// parts are.
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

// moreParts is the last element of the list in JSON if PartsError.More is not 0.
type moreParts struct {
	More int `json:"more"`
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

// Unwrap returns Cause.
func (e *PartsError) Unwrap() error { return e.Cause }

// MarshalJSON returns the list of the parts, and behind them {"more": n} if further ones are
// not listed.
func (e *PartsError) MarshalJSON() ([]byte, error) {
	list := make([]any, 0, len(e.Parts)+1)
	for i := range e.Parts {
		list = append(list, &e.Parts[i])
	}
	if e.More > 0 {
		list = append(list, moreParts{e.More})
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (e *PartsError) UnmarshalJSON(text []byte) error {
	var list []struct {
		Part
		moreParts
	}
	*e = PartsError{}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for i := range list {
		if e.More += list[i].More; list[i].More == 0 {
			e.Parts = append(e.Parts, list[i].Part)
		}
	}
	return nil
}
