package indexbench

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/index"
)

const (
	// traceTokens is how many tokens a hash covers when a trace is walked for time.
	traceTokens = 16
	// traceHashLen is the length of the hashes of a trace.
	traceHashLen = sha256.Size
	// maxTraceHashes is how many different hashes an index for a trace has room for.
	maxTraceHashes = 1 << 24
)

// ReplayOptions says what to walk.
type ReplayOptions struct {
	Trace      workload.Trace // is read several times
	Passes     int            // the median of so many is reported
	Capacities []int64        // bounds, in blocks, to count hits under; may be empty

	Progress Progress // may be nil

	open opener // newPool, but for tests
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o ReplayOptions) Validate() error {
	for _, c := range o.Capacities {
		if c < 1 || c > maxEntries {
			return fmt.Errorf("%w: a capacity of %d blocks; give 1 to %d", measure.ErrOptions, c, maxEntries)
		}
	}
	if o.Trace.Open == nil {
		return fmt.Errorf("%w: no trace", measure.ErrOptions)
	}
	return checkPasses(o.Passes)
}

// ReplayReport is what [Replay] measured: medians of the passes, nanoseconds of all
// lookups for each hash that hit.
type ReplayReport struct {
	Setup     measure.Setup `json:"setup"`
	Trace     string        `json:"trace"`
	Passes    int           `json:"passes"`
	Requests  int           `json:"requests"`
	Hashes    int64         `json:"hashes"`
	HitHashes int64         `json:"hit_hashes"`

	NsPerHit      float64 `json:"trace_ns_per_hit_hash"`
	GomapNsPerHit float64 `json:"gomap_trace_ns_per_hit_hash"`
	Ratio         float64 `json:"ratio"` // the map's time over the index's

	Spread      Spread `json:"trace_ns_per_hit_hash_spread"`
	GomapSpread Spread `json:"gomap_trace_ns_per_hit_hash_spread"`

	Capacities []CapacityRow `json:"capacities,omitempty"`
}

// Replay walks a trace with the index and with a map, in hashes of 16 tokens, and
// counts hits under the capacities. Errors wrap [measure.ErrOptions],
// [workload.ErrTrace] or [ErrWrong], or are the cause of ctx being done.
func Replay(ctx context.Context, o ReplayOptions) (ReplayReport, error) {
	if err := o.Validate(); err != nil {
		return ReplayReport{}, err
	}
	setDefaults(&o.Progress, &o.open)
	r := ReplayReport{Trace: o.Trace.Name, Passes: o.Passes, Setup: measure.NewSetup(0)}
	var ours, rivals passes
	for pass := range o.Passes {
		o.Progress("walk", pass, o.Passes)
		w, err := o.walkIndex(ctx)
		if err != nil {
			return r, err
		}
		rival, err := o.walkMap(ctx, w)
		if err != nil {
			return r, err
		}
		ours, rivals = append(ours, w.nsPerHit()), append(rivals, rival.nsPerHit())
		r.Requests, r.Hashes, r.HitHashes = len(w.hits), w.hashes, w.hitHashes
	}
	o.Progress("walk", o.Passes, o.Passes)
	r.NsPerHit, r.Spread = ours.median(), ours.spread()
	r.GomapNsPerHit, r.GomapSpread = rivals.median(), rivals.spread()
	r.Ratio = over(r.GomapNsPerHit, r.NsPerHit)
	if len(o.Capacities) == 0 {
		return r, nil
	}
	rows, err := o.capacities(ctx)
	r.Capacities = rows
	return r, err
}

// walk is what one way through the trace came to.
type walk struct {
	hits      []int32 // leading hashes present, by request
	hashes    int64
	hitHashes int64
	entries   int64
	took      time.Duration // in lookups
}

// nsPerHit is the time of all lookups over the hits, 0 without any.
func (w *walk) nsPerHit() float64 {
	if w.hitHashes == 0 {
		return 0
	}
	return float64(w.took.Nanoseconds()) / float64(w.hitHashes)
}

// each makes the walk: lookup is timed, store is not. Hashes are generated request
// by request, so only one request's are held.
func (w *walk) each(ctx context.Context, t workload.Trace, lookup func([]byte) int, store func([]byte) error) error {
	runtime.GC()
	var hashes []byte
	return t.Each(ctx, traceTokens, 0, func(_ int, ids []uint64) error {
		hashes = workload.AppendHashes(hashes[:0], ids, traceTokens)
		start := time.Now()
		n := lookup(hashes)
		w.took += time.Since(start)
		w.hits = append(w.hits, int32(n))
		w.hashes += int64(len(hashes) / traceHashLen)
		w.hitHashes += int64(n)
		return store(hashes)
	})
}

func (o ReplayOptions) walkIndex(ctx context.Context) (*walk, error) {
	x, err := o.open(0, maxTraceHashes, traceHashLen)
	if err != nil {
		return nil, err
	}
	w := &walk{}
	err = w.each(ctx, o.Trace, x.reader(traceHashLen).leading, func(hashes []byte) error {
		return x.store(new(index.Writer), hashes, traceHashLen)
	})
	stats := x.stats()
	if w.entries = stats.Entries; err == nil && stats.Evicted > 0 {
		err = fmt.Errorf("%w: %s has more different hashes than an index for %d holds",
			workload.ErrTrace, o.Trace.Name, maxTraceHashes)
	}
	return w, err
}

// walkMap does the same with a map, made as large as the index came to be, and
// compares the answers.
func (o ReplayOptions) walkMap(ctx context.Context, want *walk) (*walk, error) {
	m := newGoMap(traceHashLen, int(want.entries))
	w := &walk{}
	err := w.each(ctx, o.Trace, m.leading, func(hashes []byte) error {
		m.add(hashes)
		if i := len(w.hits) - 1; i >= len(want.hits) || w.hits[i] != want.hits[i] {
			return fmt.Errorf("%w: request %d: %d leading hashes present, of a map %d", ErrWrong, i+1, want.hits[i], w.hits[i])
		}
		return nil
	})
	return w, err
}

// WriteJSON writes the report as one line of JSON.
func (r ReplayReport) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people.
func (r ReplayReport) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %d requests, %d hashes, %d of them hit, %d passes\n%v\n\n",
		r.Trace, r.Requests, r.Hashes, r.HitHashes, r.Passes, r.Setup)
	const columns = "%-22s %-28s %-28s %s\n"
	fmt.Fprintf(&text, columns, "", "hitline", "Go map", "")
	fmt.Fprintf(&text, columns, "ns a hash that hits", cell(&r.NsPerHit, &r.Spread),
		cell(&r.GomapNsPerHit, &r.GomapSpread), suffixed(&r.Ratio, "x"))
	if len(r.Capacities) > 0 {
		const columns = "%12v %10v %10v %10v %10v\n"
		fmt.Fprintf(&text, "\nhit blocks of %d tokens:\n\n", workload.BlockTokens)
		fmt.Fprintf(&text, columns, "capacity", "hitline", "lru", "tail lru", "belady")
		for _, c := range r.Capacities {
			fmt.Fprintf(&text, columns, c.Capacity, c.Hitline, c.LRU, c.TailLRU, c.Belady)
		}
	}
	return writeTrimmed(w, text.String())
}
