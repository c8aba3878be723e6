package vllm

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

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
	Model   string   `json:"model"`
	TP      int      `json:"tp_size"`
	Hashes  int      `json:"hashes"`
	Engines int      `json:"engines"`
	Stored  Presence `json:"stored"`

	VLLM    Times `json:"vllm"`
	Hitline Times `json:"hitline"`

	// Ratios of vLLM's percentiles to hitline's in the same round, of which the median over
	// the rounds counts: above 1, vLLM takes longer. Min and max are of one round.
	P50Ratio    float64 `json:"p50_ratio"`
	P50RatioMin float64 `json:"p50_ratio_min"`
	P50RatioMax float64 `json:"p50_ratio_max"`
	P99Ratio    float64 `json:"p99_ratio"`
	P99RatioMin float64 `json:"p99_ratio_min"`
	P99RatioMax float64 `json:"p99_ratio_max"`

	VLLMKeys      int     `json:"vllm_keys"`      // that the release asks for in one lookup
	HitlineKeys   float64 `json:"hitline_keys"`   // likewise, mean
	HitlineRounds float64 `json:"hitline_rounds"` // calls of the backend in one lookup, mean; a call may be several requests
	HitlineShared float64 `json:"hitline_shared"` // share of lookups answered by the answer to an equal one, 0 to 1
	Wrong         int     `json:"wrong"`          // chains of a round whose answers differ
}

// Times are durations of lookups of one of the two, in microseconds: of those of all rounds,
// and the least and the largest median of a round.
type Times struct {
	P50      float64 `json:"p50_us"`
	P50Min   float64 `json:"p50_us_min"`
	P50Max   float64 `json:"p50_us_max"`
	P99      float64 `json:"p99_us"`
	Max      float64 `json:"max_us"`
	Requests int     `json:"requests"` // lookups
}

// row returns the report's row of a cell that has run.
func (c *cell) row() Row {
	s := c.shape
	r := Row{Model: s.Model, TP: s.TP, Hashes: s.Hashes, Engines: s.Engines, Stored: c.presence, VLLMKeys: c.asked, Wrong: c.wrong}
	theirs, ours := c.rounds[vllm], c.rounds[hitline]
	r.VLLM, r.Hitline = times(theirs), times(ours)
	r.P50Ratio, r.P50RatioMin, r.P50RatioMax = ratio(theirs, ours, 50)
	r.P99Ratio, r.P99RatioMin, r.P99RatioMax = ratio(theirs, ours, 99)
	lookups := float64(c.after.Lookups - c.before.Lookups)
	r.HitlineKeys = float64(c.after.Keys-c.before.Keys) / lookups
	r.HitlineRounds = float64(c.after.Rounds-c.before.Rounds) / lookups
	r.HitlineShared = float64(c.after.Shared-c.before.Shared) / lookups
	return r
}

// times returns the percentiles of all rounds.
func times(rounds []round) Times {
	var medians, all []float64
	for _, r := range rounds {
		medians = append(medians, measure.Percentile(r.micros, 50))
		all = append(all, r.micros...)
	}
	slices.Sort(all)
	return Times{
		P50: measure.Percentile(all, 50), P50Min: slices.Min(medians), P50Max: slices.Max(medians),
		P99: measure.Percentile(all, 99), Max: all[len(all)-1], Requests: len(all),
	}
}

// ratio returns the median of the ratios of the p-th percentiles in each round, and the least
// and the largest.
func ratio(theirs, ours []round, p float64) (median, least, most float64) {
	ratios := make([]float64, len(theirs))
	for i := range ratios {
		ratios[i] = measure.Percentile(theirs[i].micros, p) / measure.Percentile(ours[i].micros, p)
	}
	return measure.Range(ratios)
}

// Wrong returns how many chains of a round had answers that differ, in all rows.
func (r Report) Wrong() (n int) {
	for _, row := range r.Rows {
		n += row.Wrong
	}
	return n
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

const legend = `
stored: of each prompt the keys of all blocks, of its first half, or of all but the first block
llama: full attention in blocks of 16 tokens; hybrid: MLA in blocks of 256 and four sliding windows, hashes of 4 tokens
p50, p99: of the lookups of all rounds; ratio: in each round, the median of all rounds; min to max: least and largest
keys: asked for in a lookup; rounds: hitline's calls of the master in a lookup; shared: lookups answered by an equal one
`

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "lookups of vLLM %s and of hitline over one Mooncake master, %d rounds; %s\n",
		r.Release, r.Rounds, r.Python)
	fmt.Fprintf(&text, "microseconds; ratio: vLLM / hitline; keys asked of the master in a lookup\n")
	fmt.Fprintf(&text, "%v\n", r.Setup)
	if r.Partial {
		text.WriteString("partial: it ended before all shapes were measured\n")
	}
	var last Shape
	for _, row := range r.Rows {
		if s := (Shape{row.Model, row.TP, row.Hashes, row.Engines}); s != last {
			last = s
			fmt.Fprintf(&text, "\n%s\n%-8s %12s %12s %8s %16s %12s %12s %8s %10s %10s %7s %7s\n", s,
				"stored", "vLLM p50", "hitline p50", "ratio", "min to max", "vLLM p99", "hitline p99", "ratio", "vLLM keys", "hitl. keys", "rounds", "shared")
		}
		row.write(&text)
	}
	text.WriteString(legend)
	_, err := io.WriteString(w, text.String())
	return err
}

// write writes the row's line.
func (r Row) write(w io.Writer) {
	spread := fmt.Sprintf("%.1f to %.1f", r.P50RatioMin, r.P50RatioMax)
	fmt.Fprintf(w, "%-8s %12.0f %12.0f %8.1f %16s %12.0f %12.0f %8.1f %10d %10.0f %7.1f %6.0f%%", r.Stored,
		r.VLLM.P50, r.Hitline.P50, r.P50Ratio, spread, r.VLLM.P99, r.Hitline.P99, r.P99Ratio,
		r.VLLMKeys, r.HitlineKeys, r.HitlineRounds, 100*r.HitlineShared)
	if r.Wrong > 0 {
		fmt.Fprintf(w, "  %d WRONG", r.Wrong)
	}
	fmt.Fprintln(w)
}
