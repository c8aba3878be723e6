//go:build linux

package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Report is the result of Run.
type Report struct {
	Setup       measure.Setup `json:"setup"`
	Hashes      []int         `json:"hashes"`
	BlockSize   int           `json:"block_size"`
	Chains      []int         `json:"chains"`       // that the requests rotate over, of each number of hashes
	Entries     int           `json:"entries"`      // hashes that were stored with each rival, of all numbers of hashes
	RotateBytes int64         `json:"rotate_bytes"` // that the requests of each number of hashes exceed together
	HitShare    float64       `json:"hit_share"`
	Rounds      int           `json:"rounds"`
	Pipeline    int           `json:"pipeline,omitempty"` // requests under way in the rounds of Row.Rate

	process.Placement

	Rows    []Row     `json:"rows"`
	Skipped []Skipped `json:"skipped"`
	Wrong   int       `json:"wrong"` // answers, of all requests
	Partial bool      `json:"partial,omitempty"`
}

// Row is a rival at one number of hashes.
type Row struct {
	Rival   string `json:"rival"`
	Version string `json:"version"`
	Note    string `json:"note,omitempty"` // what limits the meaning of the row
	Hashes  int    `json:"hashes"`

	measure.Times // of round trips that count, to 0.01 us

	// Ratio is to hitline: above 1, the rival takes longer. ToRaw is to the rival [RawSocket], missing if that was not
	// measured. Both are of the rounds' medians.
	Ratio measure.Spread `json:"ratio"`
	ToRaw measure.Spread `json:"to_raw,omitzero"`
	// With Options.Pipeline: requests a second, and their ratio to the raw server's.
	Rate      measure.Spread `json:"requests_per_s,omitzero"`
	RateToRaw measure.Spread `json:"requests_to_raw,omitzero"`

	Wrong int `json:"wrong"` // answers, also of requests that do not count
}

// Skipped is a rival that was left out: it is not on this machine.
type Skipped struct {
	Rival string `json:"rival"`
	Why   string `json:"why"`
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("chains", "%d rounds over %v; %d hashes stored; %.4g %% hit whole", r.Rounds, r.Chains, r.Entries, 100*r.HitShare)
	t.Line("cores", "%v", r.Placement)
	if r.Partial {
		t.Text("partial: it ended before its end")
	}
	heads := []string{"", "p50 us", "of the rounds", "p99 us", "max us", "ratio", "to raw", "requests", "wrong"}
	if r.Pipeline > 0 {
		heads = append(heads, "pipelined/s", "to raw")
	}
	last := 0
	for _, row := range r.Rows {
		if row.Hashes != last {
			last = row.Hashes
			t.Text("\n%d hashes; ratios to hitline", row.Hashes)
			t.Heads(heads...)
		}
		t.Row(row.cells()[:len(heads)]...)
	}
	r.addRivals(&t)
	if r.Wrong > 0 {
		t.Line("wrong", "%d", r.Wrong)
	}
	return t.Write(w)
}

// cells returns the row of a table, those of the pipelined rounds last.
func (r Row) cells() []any {
	return []any{
		r.Rival, fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f to %.2f", r.Times.Rounds.Min, r.Times.Rounds.Max),
		fmt.Sprintf("%.2f", r.P99), fmt.Sprintf("%.2f", r.Max), spread(r.Ratio), spread(r.ToRaw), r.Requests, r.Wrong,
		int(r.Rate.Median), spread(r.RateToRaw),
	}
}

// spread shows a median with the least and the largest, and nothing for 0.
func spread(s measure.Spread) string {
	if s.Median == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Min, s.Max)
}

// addRivals adds who the rivals are, once each, and who is missing.
func (r Report) addRivals(t *measure.Table) {
	t.Text("")
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if seen[row.Rival] {
			continue
		}
		seen[row.Rival] = true
		text := strings.TrimPrefix(strings.TrimSuffix(row.Version+"; "+row.Note, "; "), "; ")
		t.Text("%-17s %s", row.Rival, text)
	}
	for _, s := range r.Skipped {
		t.Text("%-17s skipped: %s", s.Rival, s.Why)
	}
}
