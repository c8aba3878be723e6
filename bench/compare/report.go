package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Report is the result of Run.
type Report struct {
	Hashes     []int     `json:"hashes"`
	HashTokens int       `json:"hash_block_tokens"`
	Entries    int       `json:"entries"` // hashes that were stored with each rival, of all numbers of hashes
	HitShare   float64   `json:"hit_share"`
	MissAt     string    `json:"miss_at"`
	Rounds     int       `json:"rounds"`
	Cores      []int     `json:"cores"` // of the client and of the servers; empty if not pinned
	Rows       []Row     `json:"rows"`
	Skipped    []Skipped `json:"skipped"`
	Wrong      int       `json:"wrong"` // answers, of all requests
	Partial    bool      `json:"partial,omitempty"`
}

// Row is a rival at one number of hashes.
type Row struct {
	Rival   string `json:"rival"`
	Version string `json:"version"`
	Note    string `json:"note,omitempty"` // what limits the meaning of the row
	Hashes  int    `json:"hashes"`

	P50us     float64 `json:"p50_us"` // median of the rounds' medians, to 0.01 us
	P50usMin  float64 `json:"p50_us_min"`
	P50usMax  float64 `json:"p50_us_max"`
	P99us     float64 `json:"p99_us"` // of all requests that count
	UsPerHash float64 `json:"us_per_hash"`

	Ratio    float64 `json:"ratio"` // to hitline: above 1, the rival takes longer
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`

	Requests int `json:"requests"` // that count
	Wrong    int `json:"wrong"`    // answers, also of those that do not count
}

// Skipped is a rival that is not on this machine.
type Skipped struct {
	Rival string `json:"rival"`
	Why   string `json:"why"`
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d rounds, %d hashes stored, %g of the chains hit whole; ", r.Rounds, r.Entries, r.HitShare)
	if len(r.Cores) == 2 {
		fmt.Fprintf(&text, "client on core %d, servers on core %d\n", r.Cores[0], r.Cores[1])
	} else {
		text.WriteString("nothing is pinned\n")
	}
	if r.Partial {
		text.WriteString("partial: it ended before its end\n")
	}
	last := 0
	for _, row := range r.Rows {
		if row.Hashes != last {
			last = row.Hashes
			heading := fmt.Sprintf("%d hashes", last)
			fmt.Fprintf(&text, "\n%-16s %12s %25s %12s %11s %19s %12s %9s\n", heading, "p50 us", "of the rounds", "p99 us", "to hitline", "of the rounds", "ns a hash", "requests")
		}
		row.write(&text)
	}
	r.writeRivals(&text)
	_, err := io.WriteString(w, text.String())
	return err
}

// write writes the row's line.
func (row Row) write(w io.Writer) {
	spread := fmt.Sprintf("%.2f to %.2f", row.P50usMin, row.P50usMax)
	ratios := fmt.Sprintf("%.2f to %.2f", row.RatioMin, row.RatioMax)
	fmt.Fprintf(w, "%-16s %12.2f %25s %12.2f %11.2f %19s %12.1f %9d", row.Rival, row.P50us, spread, row.P99us, row.Ratio, ratios, 1000*row.UsPerHash, row.Requests)
	if row.Wrong > 0 {
		fmt.Fprintf(w, "  %d WRONG", row.Wrong)
	}
	fmt.Fprintln(w)
}

// writeRivals writes who the rivals are, once each, and who is missing.
func (r Report) writeRivals(w io.Writer) {
	fmt.Fprintln(w)
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if seen[row.Rival] {
			continue
		}
		seen[row.Rival] = true
		text := row.Version
		if row.Note != "" {
			text = strings.TrimPrefix(text+"; "+row.Note, "; ")
		}
		fmt.Fprintf(w, "%-16s %s\n", row.Rival, text)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "%-16s skipped: %s\n", s.Rival, s.Why)
	}
}
