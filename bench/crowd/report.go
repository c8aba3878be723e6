//go:build linux

package crowd

import (
	"fmt"
	"io"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run.
type Report struct {
	Setup       measure.Setup `json:"setup"`
	Release     string        `json:"vllm_release"`
	Python      string        `json:"python"` // versions of Python and its packages
	Trace       string        `json:"trace"`
	Window      float64       `json:"window_s"`
	CacheTokens int           `json:"cache_tokens"` // of an engine's own cache
	StoreTokens int           `json:"store_tokens"` // of the store, for each engine
	Rows        []Row         `json:"rows"`
	Partial     bool          `json:"partial,omitempty"` // cells are missing
}

// Row is a cell with the figures of all of its rounds.
type Row struct {
	TP      int `json:"tp_size"`
	Way     Way `json:"way"`
	Engines int `json:"engines"`
	Rounds  int `json:"rounds"` // that were measured
	Figures
}

// find returns the last row of a way, which may be without figures.
func (r Report) find(tp int, way Way) (found Row) {
	for _, row := range r.Rows {
		if row.TP == tp && row.Way == way && row.Rounds > 0 {
			found = row
		}
	}
	return found
}

// lookupCPU returns the master's CPU time a turn less that without lookups and loads, in milliseconds, with as many engines or with the
// largest number that was measured. ok is false if none was.
func (r Report) lookupCPU(row Row) (ms float64, ok bool) {
	base := r.find(row.TP, None)
	for _, other := range r.Rows {
		if other.TP == row.TP && other.Way == None && other.Engines == row.Engines {
			base = other
		}
	}
	return (row.CPUPerTurn() - base.CPUPerTurn()).Seconds() * 1000, base.Rounds > 0
}

// computedEngines are the numbers of engines of a cluster for which the cores of a master are computed.
var computedEngines = []int{100, 1000, 10_000}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("engines", "of vLLM %s, 0.2 turns a second each, caches of %s tokens; trace %s", r.Release,
		measure.Grouped(int64(r.CacheTokens)), r.Trace)
	t.Line("store", "%s tokens for each engine, one Mooncake master, turns of %.0f s; %s",
		measure.Grouped(int64(r.StoreTokens)), r.Window, r.Python)
	if r.Partial {
		t.Text("partial: it ended before all cells were measured")
	}
	tp := 0
	for _, row := range r.Rows {
		if row.TP != tp {
			tp = row.TP
			t.Text("\nTP %d", tp)
			t.Heads("lookups", "engines", "turns", "keys", "leases", "all leases", "CPU ms", "lookups ms", "failed puts",
				"evictions", "empty", "hit %", "late", "unasked", "p50 ms", "p99 ms", "master %", "bench %")
		}
		t.Row(r.cells(row)...)
	}
	t.Text("\nComputed from the CPU time a turn of the row with the most engines: cores of a master")
	t.Heads("TP", "lookups", "of engines", "a core carries", "100", "1,000", "10,000")
	for _, row := range r.Rows {
		if r.find(row.TP, row.Way).Engines == row.Engines {
			t.Row(computed(row)...)
		}
	}
	t.Text(`
keys, leases: asked for by the lookups of a turn, and found; all leases: with those of loads and saves
CPU ms: of the master, a turn; lookups ms: less that without lookups and loads
empty: evictions that found nothing; hit %%: what the pool gave of what engines did not have themselves
late: calls of hitline that the master did not answer in time; unasked: lookups of the second after five late ones
bench: hitbench and the clients of the store
p50, p99: of the lookups that an engine waits for, unless bench takes half of a core; vLLM's without its Python`)
	return t.Write(w)
}

// cells returns a row of the table.
func (r Report) cells(row Row) []any {
	f := row.Figures
	aTurn := func(n int64) int64 { return n / int64(max(1, f.Turns)) }
	lookups, hits, p50, p99 := "-", "-", "-", "-"
	if row.Way != None {
		hits = fmt.Sprintf("%.1f", 100*f.HitShare())
	}
	if ms, ok := r.lookupCPU(row); ok && row.Way != None {
		lookups = fmt.Sprintf("%.1f", ms)
	}
	if f.P50us > 0 {
		p50, p99 = fmt.Sprintf("%.1f", f.P50us/1000), fmt.Sprintf("%.1f", f.P99us/1000)
	}
	return []any{
		string(row.Way), row.Engines, f.Turns, aTurn(f.LookupKeys), aTurn(f.LookupLeases), aTurn(f.Leases()),
		fmt.Sprintf("%.1f", f.CPUPerTurn().Seconds()*1000), lookups, f.FailedPuts, f.Evictions, f.EmptyEvictions, hits, f.Late, f.Unasked, p50, p99,
		fmt.Sprintf("%.0f", 100*f.MasterShare()), fmt.Sprintf("%.0f", 100*f.GeneratorShare()),
	}
}

// computed returns what is computed of a row.
func computed(row Row) []any {
	one := row.EnginesPerCore()
	cells := []any{row.TP, string(row.Way), row.Engines, int(one)}
	for _, n := range computedEngines {
		cells = append(cells, fmt.Sprintf("%.1f", float64(n)/one))
	}
	return cells
}
