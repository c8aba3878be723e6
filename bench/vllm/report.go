package vllm

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Report is the result of Run.
type Report struct {
	Release string `json:"vllm_release"`
	Python  string `json:"python"` // versions of Python and its packages
	Rounds  int    `json:"rounds"`
	Rows    []Row  `json:"rows"`
	Partial bool   `json:"partial,omitempty"`
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

	// Ratios of vLLM's times to hitline's: above 1, vLLM takes longer.
	P50Ratio    float64 `json:"p50_ratio"`     // of the medians of the rounds
	P50RatioMin float64 `json:"p50_ratio_min"` // least of a round
	P50RatioMax float64 `json:"p50_ratio_max"` // largest of a round
	P99Ratio    float64 `json:"p99_ratio"`     // of all lookups

	VLLMKeys      int     `json:"vllm_keys"`      // that the release asks for in one lookup
	HitlineKeys   float64 `json:"hitline_keys"`   // likewise, mean
	HitlineRounds float64 `json:"hitline_rounds"` // calls of the backend in one lookup, mean; a call may be several requests
	HitlineShared float64 `json:"hitline_shared"` // share of lookups answered by the answer to an equal one, 0 to 1
	Wrong         int     `json:"wrong"`          // chains of a round whose answers differ
}

// Times are durations of lookups of one of the two, in microseconds.
type Times struct {
	P50      float64 `json:"p50_us"` // median of the rounds' medians
	P50Min   float64 `json:"p50_us_min"`
	P50Max   float64 `json:"p50_us_max"`
	P99      float64 `json:"p99_us"`   // of all lookups
	Requests int     `json:"requests"` // lookups
}

// row returns the report's row of a cell that has run.
func (c *cell) row() Row {
	s := c.shape
	r := Row{Model: s.Model, TP: s.TP, Hashes: s.Hashes, Engines: s.Engines, Stored: c.presence, VLLMKeys: c.asked, Wrong: c.wrong}
	r.VLLM, r.Hitline = times(c.rounds[vllm]), times(c.rounds[hitline])
	r.P50Ratio, r.P99Ratio = r.VLLM.P50/r.Hitline.P50, r.VLLM.P99/r.Hitline.P99
	var ratios []float64
	for i, theirs := range c.rounds[vllm] {
		ratios = append(ratios, median(theirs.micros)/median(c.rounds[hitline][i].micros))
	}
	r.P50RatioMin, r.P50RatioMax = slices.Min(ratios), slices.Max(ratios)
	lookups := float64(c.after.Lookups - c.before.Lookups)
	r.HitlineKeys = float64(c.after.Keys-c.before.Keys) / lookups
	r.HitlineRounds = float64(c.after.Rounds-c.before.Rounds) / lookups
	r.HitlineShared = float64(c.after.Shared-c.before.Shared) / lookups
	return r
}

func times(rounds []round) Times {
	var medians, all []float64
	for _, r := range rounds {
		medians = append(medians, median(r.micros))
		all = append(all, r.micros...)
	}
	slices.Sort(medians)
	slices.Sort(all)
	return Times{
		P50: median(medians), P50Min: medians[0], P50Max: medians[len(medians)-1],
		P99: quantile(all, 0.99), Requests: len(all),
	}
}

// quantile returns the element of sorted at q of its length, rounded down. There must be one.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// median returns the middle element of sorted, or the mean of the two. There must be one.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
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
ratio: of the medians of all rounds; min to max: of the medians of one round
keys: asked for in a lookup; rounds: hitline's calls of the master in a lookup; shared: lookups answered by an equal one
`

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "lookups of vLLM %s and of hitline over one Mooncake master, %d rounds; %s\n",
		r.Release, r.Rounds, r.Python)
	fmt.Fprintf(&text, "microseconds; ratio: vLLM / hitline; keys asked of the master in a lookup\n")
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
