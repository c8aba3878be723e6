package vllm

import (
	"fmt"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// Requirement is what a figure of a row should be. Nothing fails on one: times are a machine's.
type Requirement struct {
	Figure   string  `json:"figure"`
	Measured float64 `json:"measured"`
	Required float64 `json:"required"`
	AtMost   bool    `json:"at_most"` // else at least
	Met      bool    `json:"met"`
}

func (q Requirement) String() string {
	sign, met := "≥", "missed"
	if q.AtMost {
		sign = "≤"
	}
	if q.Met {
		met = "met"
	}
	return fmt.Sprintf("%s %.2f %s %g: %s", q.Figure, q.Measured, sign, q.Required, met)
}

const (
	longHashes  = 1875 // of the prompts that figures are required of, 30,000 tokens
	shortHashes = 16
	// bytesShare is the share of hitline's time that the master's own answer takes, above which
	// there is nothing left to gain.
	bytesShare = 0.8
	// noSlower allows for the noise of two programs that are the same.
	noSlower = 0.95
)

// leastRatios are required of vLLM's time to hitline's, by tensor-parallel size.
var leastRatios = map[Ask]map[Presence]map[int]float64{
	First: {All: {1: 4.5, 8: 2.6}, Half: {8: 3}, RandomCut: {8: 2.6}},
	Again: {All: {1: 30, 8: 100}},
	Turns: {All: {1: 20, 8: 30}},
}

// requirements returns those of the row. None is of a store with groups.
func (r *Row) requirements() (all []Requirement) {
	if r.Model != Llama || r.Grouped {
		return nil
	}
	if least := leastRatios[r.Ask][r.Stored][r.TP]; least > 0 && (r.Hashes == longHashes || r.Ask == Turns) {
		all = append(all, r.ratioRequirement(least))
	}
	if r.Ask == Blocked {
		all = append(all, atMost("ms a step", r.Hitline.P50/1000, 0.5))
	}
	if r.Ask != First {
		return all
	}
	if r.Stored == All && r.Hashes >= longHashes && r.Bytes != nil {
		all = append(all, atMost("p99/p50, to that of bytes", r.Hitline.tail()/r.Bytes.tail(), 1.2))
	}
	if r.Before != nil && (r.Stored == FirstMissing || r.Hashes == shortHashes) {
		all = append(all, atLeast("before / hitline", r.Before.Ratio.Median, noSlower))
	}
	return all
}

// ratioRequirement returns that of vLLM's time to hitline's. Where the master takes most of
// hitline's time, that is enough.
func (r *Row) ratioRequirement(least float64) Requirement {
	q := atLeast("ratio", r.P50Ratio.Median, least)
	if r.Ask == First && !q.Met && r.Bytes != nil && r.Bytes.Ratio.Median > bytesShare {
		return atLeast(fmt.Sprintf("instead of ratio %g bytes / hitline", least), r.Bytes.Ratio.Median, bytesShare)
	}
	return q
}

func atLeast(figure string, measured, required float64) Requirement {
	return Requirement{figure, measure.Round(measured, 3), required, false, measured >= required}
}

func atMost(figure string, measured, required float64) Requirement {
	return Requirement{figure, measure.Round(measured, 3), required, true, measured <= required}
}

// verdict returns the requirements in one line.
func (r *Row) verdict() string {
	texts := make([]string, len(r.Required))
	for i, q := range r.Required {
		texts[i] = q.String()
	}
	return strings.Join(texts, "; ")
}
