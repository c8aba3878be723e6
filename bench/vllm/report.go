//go:build linux

package vllm

import (
	"fmt"
	"io"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run.
type Report struct {
	Setup   measure.Setup `json:"setup"`
	Release string        `json:"vllm_release"`
	Python  string        `json:"python"` // versions of Python and its packages
	Rounds  int           `json:"rounds"`
	Rows    []Row         `json:"rows"`
	Partial bool          `json:"partial,omitempty"` // rows are missing
}

// Row is how one set of stored prompts was asked for.
type Row struct {
	Shape
	Stored Presence `json:"stored"`
	Ask    Ask      `json:"ask"`

	VLLM    measure.Times `json:"vllm"`
	Hitline measure.Times `json:"hitline"`
	Bytes   *Other        `json:"bytes,omitempty"` // the same keys, to the first absent one, as requests made before

	// P50Ratio is that of vLLM's median to hitline's in the same round, of which the median over
	// the rounds counts: above 1, vLLM takes longer.
	P50Ratio measure.Spread `json:"p50_ratio"`

	VLLMKeys      int     `json:"vllm_keys"`      // that the release asks for in one lookup, with Turns in the longest
	HitlineKeys   float64 `json:"hitline_keys"`   // likewise, mean
	HitlineRounds float64 `json:"hitline_rounds"` // calls of the backend in one lookup, mean; a call may be several requests
	Wrong         int     `json:"wrong"`          // answers that differ
}

// Other are the times of a further side, and how many times as long as hitline it takes.
type Other struct {
	measure.Times
	Ratio measure.Spread `json:"p50_ratio"`
}

// Wrong returns how many answers differ, in all rows.
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
		t.Text("partial: it ended before all rows were measured")
	}
	var last string
	for _, row := range r.Rows {
		if head := row.Shape.String(); head != last {
			last = head
			t.Text("\n%s", head)
			t.Heads("asked", "stored", "vLLM us", "hitline us", "ratio", "min to max", "bytes us", "to ours",
				"vLLM keys", "hitline keys", "rounds", "wrong")
		}
		t.Row(row.cells()...)
	}
	t.Text(`
asked: first: nothing is remembered; known: once more; gone: known, but removed since, long ago; again: a second time at once; blocked head: every 30 ms for 3 s;
  turns: the engine itself has the number of hashes above, and each prompt is %d %% longer than the one before
stored: the keys of all blocks of a prompt, of its first half, of those before a random one, or of all but the first;
  removed: none are since hitline has found them
us: median of the lookups of all rounds; ratio: vLLM / hitline, median of the rounds; min to max: of the rounds
bytes: the keys that tell the hit, as requests made before, on two connections; to ours: bytes / hitline
keys: asked for in a lookup; rounds: hitline's calls of the master in a lookup`, turnPercent)
	return t.Write(w)
}

// cells returns the row of a table.
func (r Row) cells() []any {
	bytes, toOurs := "-", "-"
	if o := r.Bytes; o != nil {
		bytes = fmt.Sprintf("%.0f", o.P50)
		toOurs = fmt.Sprintf("%.2f", o.Ratio.Median)
	}
	return []any{
		string(r.Ask), string(r.Stored), fmt.Sprintf("%.0f", r.VLLM.P50), fmt.Sprintf("%.0f", r.Hitline.P50),
		fmt.Sprintf("%.1f", r.P50Ratio.Median), fmt.Sprintf("%.1f to %.1f", r.P50Ratio.Min, r.P50Ratio.Max), bytes, toOurs,
		r.VLLMKeys, fmt.Sprintf("%.0f", r.HitlineKeys), fmt.Sprintf("%.1f", r.HitlineRounds), r.Wrong,
	}
}
