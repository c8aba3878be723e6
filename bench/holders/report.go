package holders

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run.
type Report struct {
	Setup      measure.Setup `json:"setup"`
	Holders    int           `json:"holders"`
	Hashes     []int         `json:"hashes"`
	HashTokens int           `json:"hash_block_tokens"`
	Blocks     int           `json:"blocks"`  // different ones, without those of the shared prompts
	Entries    int           `json:"entries"` // these blocks of each holder
	Rounds     int           `json:"rounds"`
	Cores      []int         `json:"cores"`          // the one that all ran on; empty: not pinned
	LLMD       string        `json:"llmd,omitempty"` // what llm-d's program says of itself; empty: left out

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
	// StatedPerBlock is what the index says of itself; 0 if it does not say.
	StatedPerBlock float64 `json:"stated_bytes_per_block,omitempty"`
}

// Row is one side at one kind and number of hashes. Medians of the rounds, with the least and
// the largest.
type Row struct {
	Side    string `json:"side"`
	Kind    string `json:"kind"` // of the queries
	Hashes  int    `json:"hashes"`
	Queries int    `json:"queries"` // different ones

	PerSecond    float64 `json:"lookups_per_second"`
	PerSecondMin float64 `json:"lookups_per_second_min"`
	PerSecondMax float64 `json:"lookups_per_second_max"`
	NsPerBlock   float64 `json:"ns_per_block"` // by the hashes of a query, also of those that miss

	// How many times as long as Fleet's a lookup takes. Of the ratios of the rounds.
	Ratio    float64 `json:"ratio"`
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`

	// A lookup's, of all rounds.
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"alloc_bytes"`
	Lookups    uint64  `json:"lookups"` // that count
}

// emptyReport returns the report before the first row.
func emptyReport(o Options) Report {
	return Report{
		Setup: measure.NewSetup(o.Seed), Holders: o.Holders, Hashes: o.Hashes, HashTokens: o.HashTokens, Rounds: o.Rounds,
		Cores: []int{}, Memory: []Memory{}, Rows: []Row{},
	}
}

// rows makes the rows of a batch.
func (b *batch) rows() []Row {
	var rows []Row
	for _, side := range []string{Fleet, LLMD, LLMDLookup} {
		if len(b.rounds[side]) > 0 {
			rows = append(rows, b.row(side))
		}
	}
	return rows
}

func (b *batch) row(side string) Row {
	r := Row{Side: side, Kind: b.kind, Hashes: b.hashes, Queries: len(b.want)}
	var rates, times, ratios []float64
	var allocs, bytes uint64
	for i, of := range b.rounds[side] {
		rates = append(rates, 1e9/of.nsPerLookup)
		times = append(times, of.nsPerLookup/float64(b.hashes))
		ratios = append(ratios, of.nsPerLookup/b.rounds[Fleet][i].nsPerLookup)
		r.Lookups += of.Lookups
		allocs += of.Allocs
		bytes += of.Bytes
	}
	r.PerSecond, r.PerSecondMin, r.PerSecondMax = measure.Range(rates)
	r.Ratio, r.RatioMin, r.RatioMax = measure.Range(ratios)
	r.NsPerBlock = measure.Median(times)
	for _, x := range []*float64{&r.PerSecond, &r.PerSecondMin, &r.PerSecondMax} {
		*x = round1(*x)
	}
	for _, x := range []*float64{&r.Ratio, &r.RatioMin, &r.RatioMax, &r.NsPerBlock} {
		*x = measure.Round3(*x)
	}
	r.Allocs, r.AllocBytes = round1(float64(allocs)/float64(r.Lookups)), round1(float64(bytes)/float64(r.Lookups))
	return r
}

// round1 keeps a digit behind the point.
func round1(x float64) float64 { return math.Round(x*10) / 10 }

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "setup  %v\n", r.Setup)
	fmt.Fprintf(&text, "%d rounds, %d holders, %d blocks, %d entries of holders; ", r.Rounds, r.Holders, r.Blocks, r.Entries)
	if len(r.Cores) > 0 {
		fmt.Fprintf(&text, "core %d\n", r.Cores[0])
	} else {
		fmt.Fprintln(&text, "not pinned")
	}
	if r.LLMD != "" {
		fmt.Fprintf(&text, "llm-d  %s\n", r.LLMD)
	} else {
		fmt.Fprintln(&text, "llm-d  left out")
	}
	if r.Partial {
		text.WriteString("partial: it ended before its end\n")
	}
	for _, m := range r.Memory {
		fmt.Fprintf(&text, "%-13s %.1f bytes a block", m.Side, m.BytesPerBlock)
		if m.StatedPerBlock > 0 {
			fmt.Fprintf(&text, ", as it says %.1f", m.StatedPerBlock)
		}
		fmt.Fprintln(&text)
	}
	fmt.Fprintf(&text, "%d answers compared with what was stored, %d differ\n", r.Answers, r.Wrong)
	last := Row{}
	for _, row := range r.Rows {
		if row.Hashes != last.Hashes || row.Kind != last.Kind {
			last = row
			fmt.Fprintf(&text, "\n%d hashes, %s, %d queries\n", row.Hashes, row.Kind, row.Queries)
			fmt.Fprintf(&text, "%-13s %10s %12s %23s %9s %17s %10s %12s\n", "", "ns a block", "lookups/s", "of the rounds", "ratio", "of the rounds", "allocs", "bytes")
		}
		row.write(&text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// write writes the row's line.
func (row Row) write(w io.Writer) {
	rates := fmt.Sprintf("%.1f to %.1f", row.PerSecondMin, row.PerSecondMax)
	ratios := fmt.Sprintf("%.2f to %.2f", row.RatioMin, row.RatioMax)
	fmt.Fprintf(w, "%-13s %10.2f %12.1f %23s %9.2f %17s %10.1f %12.0f\n",
		row.Side, row.NsPerBlock, row.PerSecond, rates, row.Ratio, ratios, row.Allocs, row.AllocBytes)
}
