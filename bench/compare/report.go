package compare

import (
	"encoding/json"
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
	HashTokens  int           `json:"hash_block_tokens"`
	Chains      []int         `json:"chains"`       // that the requests rotate over, of each number of hashes
	Entries     int           `json:"entries"`      // hashes that were stored with each rival, of all numbers of hashes
	RotateBytes int64         `json:"rotate_bytes"` // that the requests of each number of hashes exceed together
	HitShare    float64       `json:"hit_share"`
	MissAt      string        `json:"miss_at"`
	Rounds      int           `json:"rounds"`

	process.Placement

	Rows    []Row     `json:"rows"`
	Skipped []Skipped `json:"skipped"`
	Wrong   int       `json:"wrong"` // answers, of all requests
	Partial bool      `json:"partial,omitempty"`
}

// Row is a rival, asked in one way, at one number of hashes.
type Row struct {
	Rival   string `json:"rival"`
	Way     string `json:"way"`    // Prepared or Usual
	Client  string `json:"client"` // who asks
	Version string `json:"version"`
	Note    string `json:"note,omitempty"` // what limits the meaning of the row
	Hashes  int    `json:"hashes"`

	P50us     float64 `json:"p50_us"`     // of all requests that count, as p99_us and max_us; to 0.01 us
	P50usMin  float64 `json:"p50_us_min"` // of the rounds' medians, as the next
	P50usMax  float64 `json:"p50_us_max"`
	P99us     float64 `json:"p99_us"`
	MaxUs     float64 `json:"max_us"`
	UsPerHash float64 `json:"us_per_hash"` // p50_us by the number of hashes

	// To hitline asked in the same way: above 1, the rival takes longer. Median, least
	// and largest of the ratios of the rounds' medians.
	Ratio    float64 `json:"ratio"`
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`
	// RatioZMTP is to hitline-zmtp asked in the same way, by the same client; 0 if the
	// rival is not asked over ZeroMQ, or hitline-zmtp is not measured.
	RatioZMTP float64 `json:"ratio_zmtp,omitempty"`

	Requests int `json:"requests"` // that count
	Wrong    int `json:"wrong"`    // answers, also of requests that do not count
}

// Skipped is a rival that was left out: it is not on this machine, or would not fit into
// its memory.
type Skipped struct {
	Rival string `json:"rival"`
	Way   string `json:"way,omitempty"` // empty: both
	Why   string `json:"why"`
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "setup  %v\n", r.Setup)
	fmt.Fprintf(&text, "%d rounds, %d hashes stored, %.4g %% of the chains hit whole; %v\n", r.Rounds, r.Entries, 100*r.HitShare, r.Placement)
	if len(r.Placement.Server) == 1 && !r.Placement.Shared {
		text.WriteString("one core for each server: those with several threads, such as pyzmq's, wait for it more than on a larger machine\n")
	}
	if r.Partial {
		text.WriteString("partial: it ended before its end\n")
	}
	last := Row{}
	for _, row := range r.Rows {
		if row.Hashes != last.Hashes || row.Way != last.Way {
			last = row
			row.writeHeading(&text)
		}
		row.write(&text)
	}
	r.writeRivals(&text)
	_, err := io.WriteString(w, text.String())
	return err
}

// headings are what the groups of rows are called.
var headings = map[string]string{
	Prepared: "prepared bytes over a raw socket; ratios to hitline asked so",
	Usual:    "each by its users' client; ratios to hitline by lookup/client",
}

// writeHeading writes the heading of the rows of one way at one number of hashes.
func (row Row) writeHeading(w io.Writer) {
	fmt.Fprintf(w, "\n%d hashes, %s\n", row.Hashes, headings[row.Way])
	fmt.Fprintf(w, "%-17s %-16s %11s %23s %11s %11s %9s %17s %7s %10s %8s\n",
		"", "client", "p50 us", "of the rounds", "p99 us", "max us", "ratio", "of the rounds", "zmtp", "ns a hash", "requests")
}

// write writes the row's line.
func (row Row) write(w io.Writer) {
	spread := fmt.Sprintf("%.2f to %.2f", row.P50usMin, row.P50usMax)
	ratios := fmt.Sprintf("%.2f to %.2f", row.RatioMin, row.RatioMax)
	zmtp := ""
	if row.RatioZMTP > 0 {
		zmtp = fmt.Sprintf("%.2f", row.RatioZMTP)
	}
	fmt.Fprintf(w, "%-17s %-16s %11.2f %23s %11.2f %11.2f %9.2f %17s %7s %10.1f %8d",
		row.Rival, row.Client, row.P50us, spread, row.P99us, row.MaxUs, row.Ratio, ratios, zmtp, 1000*row.UsPerHash, row.Requests)
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
		if _, why := UsualClient(row.Rival); why != "" {
			text += "; prepared only: " + why
		}
		fmt.Fprintf(w, "%-17s %s\n", row.Rival, text)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "%-17s skipped", s.Rival)
		if s.Way != "" {
			fmt.Fprintf(w, " by its %s client", s.Way)
		}
		fmt.Fprintf(w, ": %s\n", s.Why)
	}
}
