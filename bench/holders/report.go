//go:build linux

package holders

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run.
type Report struct {
	Setup     measure.Setup `json:"setup"`
	Holders   int           `json:"holders"`
	Hashes    []int         `json:"hashes"`
	BlockSize int           `json:"block_size"` // tokens that one hash covers
	Blocks    int           `json:"blocks"`     // different ones, without those of the shared prompts
	Entries   int           `json:"entries"`    // these blocks of each holder
	Rounds    int           `json:"rounds"`
	Cores     []int         `json:"cores"`  // that all ran on; empty: not pinned
	Rivals    []string      `json:"rivals"` // with their versions

	Memory  []Memory `json:"memory"`
	Rows    []Row    `json:"rows"`
	Answers int      `json:"answers"` // that were compared with what was stored
	Wrong   int      `json:"wrong"`   // of these
	Partial bool     `json:"partial,omitempty"`
}

// Memory is what an index needs for the blocks.
type Memory struct {
	Side          string  `json:"side"`
	Bytes         int64   `json:"bytes"`
	BytesPerBlock float64 `json:"bytes_per_block"`
}

// Row is one side at one kind and number of hashes. Figures are medians of the rounds.
type Row struct {
	Side    string `json:"side"`
	Kind    string `json:"kind"` // of the queries
	Hashes  int    `json:"hashes"`
	Queries int    `json:"queries"` // different ones

	PerSecond  measure.Spread `json:"requests_per_s"`
	NsPerBlock float64        `json:"ns_per_block"` // by the hashes of a query, also of those that miss
	Ratio      measure.Spread `json:"ratio"`        // how many times as long as Fleet's a lookup takes
	Requests   int64          `json:"requests"`     // lookups that count
}

// row makes the row of a side.
func (b *batch) row(side string) Row {
	r := Row{Side: side, Kind: b.kind, Hashes: b.hashes, Queries: b.count}
	var rates, times, ratios []float64
	for i, s := range b.samples[side] {
		rates = append(rates, 1e9/s.nsPerLookup())
		times = append(times, s.nsPerLookup()/float64(b.hashes))
		ratios = append(ratios, s.nsPerLookup()/b.samples[Fleet][i].nsPerLookup())
		r.Requests += s.lookups
	}
	r.PerSecond, r.Ratio, r.NsPerBlock = measure.SpreadOf(rates), measure.SpreadOf(ratios), measure.Round(measure.Median(times), 3)
	return r
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("stored", "%d blocks, %d entries of %d holders", r.Blocks, r.Entries, r.Holders)
	t.Line("rounds", "%d, cores %v", r.Rounds, r.Cores)
	t.Line("rivals", "%s", cmp.Or(strings.Join(r.Rivals, ", "), "left out"))
	if r.Partial {
		t.Text("partial: it ended before its end")
	}
	for _, m := range r.Memory {
		t.Line("memory", "%s: %.1f bytes a block", m.Side, m.BytesPerBlock)
	}
	t.Line("answers", "%d compared with what was stored, %d differ", r.Answers, r.Wrong)
	last := Row{}
	for _, row := range r.Rows {
		if row.Hashes != last.Hashes || row.Kind != last.Kind {
			last = row
			t.Text("\n%d hashes, %s, %d queries", row.Hashes, row.Kind, row.Queries)
			t.Heads("", "ns a block", "lookups/s", "of the rounds", "ratio", "of the rounds")
		}
		t.Row(row.Side, fmt.Sprintf("%.2f", row.NsPerBlock), fmt.Sprintf("%.1f", row.PerSecond.Median),
			fmt.Sprintf("%.1f to %.1f", row.PerSecond.Min, row.PerSecond.Max), fmt.Sprintf("%.2f", row.Ratio.Median),
			fmt.Sprintf("%.2f to %.2f", row.Ratio.Min, row.Ratio.Max))
	}
	return t.Write(w)
}
