package vllm

import (
	"fmt"
	"io"
	"slices"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run.
type Report struct {
	Setup   measure.Setup `json:"setup"`
	Release string        `json:"vllm_release"`
	Python  string        `json:"python"` // versions of Python and its packages
	Rounds  int           `json:"rounds"`
	Rows    []Row         `json:"rows"`
	Partial bool          `json:"partial,omitempty"`
}

// Row is one shape and presence.
type Row struct {
	Shape
	Stored Presence `json:"stored"`

	VLLM    Times `json:"vllm"`
	Hitline Times `json:"hitline"`

	// Ratios of vLLM's percentiles to hitline's in the same round, of which the median over
	// the rounds counts: above 1, vLLM takes longer.
	P50Ratio measure.Spread `json:"p50_ratio"`
	P99Ratio measure.Spread `json:"p99_ratio"`

	VLLMKeys      int     `json:"vllm_keys"`      // that the release asks for in one lookup
	HitlineKeys   float64 `json:"hitline_keys"`   // likewise, mean
	HitlineRounds float64 `json:"hitline_rounds"` // calls of the backend in one lookup, mean; a call may be several requests
	HitlineShared float64 `json:"hitline_shared"` // share of lookups answered by the answer to an equal one, 0 to 1
	Wrong         int     `json:"wrong"`          // chains of a round whose answers differ
}

// Times are durations of lookups of one of the two, in microseconds.
type Times struct {
	P50      float64        `json:"p50_us"`        // of the lookups of all rounds, as p99_us and max_us
	Rounds   measure.Spread `json:"p50_us_rounds"` // of the rounds' medians
	P99      float64        `json:"p99_us"`
	Max      float64        `json:"max_us"`
	Requests int            `json:"requests"` // lookups
}

// percentiles returns the p-th percentile of each round.
func percentiles(rounds []round, p float64) []float64 {
	figures := make([]float64, len(rounds))
	for i, r := range rounds {
		figures[i] = measure.Percentile(r.micros, p)
	}
	return figures
}

// times returns the percentiles of all rounds.
func times(rounds []round) Times {
	var all []float64
	for _, r := range rounds {
		all = append(all, r.micros...)
	}
	slices.Sort(all)
	return Times{
		P50: measure.Percentile(all, 50), Rounds: measure.SpreadOf(percentiles(rounds, 50)),
		P99: measure.Percentile(all, 99), Max: all[len(all)-1], Requests: len(all),
	}
}

// ratio returns the ratios of the p-th percentiles in each round.
func ratio(theirs, ours []round, p float64) measure.Spread {
	return measure.SpreadOf(measure.Ratios(percentiles(theirs, p), percentiles(ours, p)))
}

// Wrong returns how many chains of a round had answers that differ, in all rows.
func (r Report) Wrong() (n int) {
	for _, row := range r.Rows {
		n += row.Wrong
	}
	return n
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("lookups", "of vLLM %s and of hitline over one Mooncake master, %d rounds; %s", r.Release, r.Rounds, r.Python)
	if r.Partial {
		t.Text("partial: it ended before all shapes were measured")
	}
	var last Shape
	for _, row := range r.Rows {
		if row.Shape != last {
			last = row.Shape
			t.Text("\n%v", last)
			t.Heads("stored", "vLLM p50 us", "hitline p50 us", "ratio", "min to max", "vLLM p99 us", "hitline p99 us", "ratio", "vLLM keys", "hitline keys",
				"rounds", "shared", "wrong")
		}
		t.Row(string(row.Stored), fmt.Sprintf("%.0f", row.VLLM.P50), fmt.Sprintf("%.0f", row.Hitline.P50), fmt.Sprintf("%.1f", row.P50Ratio.Median),
			fmt.Sprintf("%.1f to %.1f", row.P50Ratio.Min, row.P50Ratio.Max),
			fmt.Sprintf("%.0f", row.VLLM.P99), fmt.Sprintf("%.0f", row.Hitline.P99), fmt.Sprintf("%.1f", row.P99Ratio.Median),
			row.VLLMKeys, fmt.Sprintf("%.0f", row.HitlineKeys), fmt.Sprintf("%.1f", row.HitlineRounds), fmt.Sprintf("%.0f%%", 100*row.HitlineShared), row.Wrong)
	}
	t.Text(`
stored: of each prompt the keys of all blocks, of its first half, or of all but the first block
llama: full attention in blocks of 16 tokens; hybrid: MLA in blocks of 256 and four sliding windows, hashes of 4 tokens
p50, p99: of the lookups of all rounds; ratio: vLLM / hitline in each round, the median of all; min to max: of the rounds
keys: asked for in a lookup; rounds: hitline's calls of the master in a lookup; shared: lookups answered by an equal one`)
	return t.Write(w)
}
