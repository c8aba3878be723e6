// Package capacity counts what a recorded trace hits in bounded indexes: in package index, under
// least recently used, and under the best possible choice.
//
// An entry is a block of 512 tokens, one id of the trace in its context. A request hits the blocks
// before the first that is gone; then all of its blocks are stored.
package capacity

import (
	"context"
	"fmt"
	"io"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/index"
)

// MaxEntries bounds a capacity: what an index holds at most.
const MaxEntries = 1 << 30

// Options says what to count.
type Options struct {
	Trace      workload.Trace // is read twice, and once more for each capacity
	Capacities []int          // numbers of entries
	// OnStep is called before each capacity with how many are done. It must be set.
	OnStep func(phase string, done, total int)

	open func(maxEntries int) (bounded, error) // openIndex, but for tests
}

// bounded is an index of few entries.
type bounded interface {
	// leading looks hashes up until one is absent and returns how many are not.
	leading(hashes []byte) int
	store(hashes []byte) error
	entries() int64
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	if o.Trace.Open == nil {
		return measure.BadOptions("no trace")
	}
	return measure.CheckList("entries", o.Capacities, 1, MaxEntries)
}

// Report is what [Run] counted.
type Report struct {
	Setup     measure.Setup `json:"setup"`
	Trace     string        `json:"trace"`
	Requests  int           `json:"requests"`
	Hashes    int64         `json:"hashes"`     // of all requests, one for each block
	BlockSize int           `json:"block_size"` // tokens that one of them covers
	Rows      []Row         `json:"capacities"` // in the order of the options
}

// Row is how many blocks of a trace hit when an index is bounded to Capacity.
//
//   - Hitline: package index.
//   - LRU: exact, block by block; a request uses its blocks head first.
//   - TailLRU: the same but tail first, so that a chain loses its end first; of a
//     request longer than the whole it keeps the beginning.
//   - Belady: the most possible, with knowledge of the future. After each request those
//     blocks are kept, of all that were kept before or stored now, that are used again
//     soonest. A request uses the blocks before a block a moment sooner, so no block is
//     kept without its prefix: the sum is the exact optimum.
type Row struct {
	Capacity int   `json:"capacity"` // entries
	Hitline  int64 `json:"hitline"`
	LRU      int64 `json:"lru"`
	TailLRU  int64 `json:"tail_lru"`
	Belady   int64 `json:"belady"`
}

// Run counts the hits under each capacity. The error wraps [measure.ErrOptions] or
// [workload.ErrTrace], or is the cause of ctx being done, or says what the index answered that
// cannot be.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	if o.open == nil {
		o.open = openIndex
	}
	requests, err := blocksOf(ctx, o.Trace)
	r := Report{
		Setup: measure.NewSetup(0), Trace: o.Trace.Name, Requests: len(requests), BlockSize: workload.BlockTokens, Rows: []Row{},
	}
	for _, blocks := range requests {
		r.Hashes += int64(len(blocks))
	}
	for i, c := range o.Capacities {
		if err != nil {
			break
		}
		o.OnStep("capacities", i, len(o.Capacities))
		var row Row
		row, err = o.row(ctx, requests, c)
		r.Rows = append(r.Rows, row)
	}
	return r, err
}

// row counts under one capacity.
func (o Options) row(ctx context.Context, requests [][]uint32, capacity int) (Row, error) {
	hits, err := o.indexHits(ctx, capacity)
	r := Row{
		Capacity: capacity, Hitline: hits, LRU: lruHits(requests, capacity, false), TailLRU: lruHits(requests, capacity, true),
		Belady: beladyHits(requests, capacity),
	}
	if err == nil && r.Hitline > r.Belady {
		err = fmt.Errorf("capacity: %d hits in %d entries; %d is the most possible", r.Hitline, capacity, r.Belady)
	}
	return r, err
}

// indexHits replays the trace to an index bounded to capacity entries.
func (o Options) indexHits(ctx context.Context, capacity int) (hits int64, err error) {
	x, err := o.open(capacity)
	if err != nil {
		return 0, err
	}
	var hashes []byte
	err = o.Trace.Each(ctx, workload.BlockTokens, 0, func(_ int, ids []uint64) error {
		hashes = workload.AppendHashes(hashes[:0], ids, workload.BlockTokens)
		hits += int64(x.leading(hashes))
		return x.store(hashes)
	})
	if n := x.entries(); err == nil && n > int64(capacity) {
		err = fmt.Errorf("capacity: %d entries under a bound of %d", n, capacity)
	}
	return hits, err
}

// boundedIndex is package index, for one group on one rank.
type boundedIndex struct {
	*index.Index
	cursor index.Cursor
	runs   [64]index.Run
}

func openIndex(maxEntries int) (bounded, error) {
	x, err := index.New(index.Config{
		MaxBytes: max(index.DefaultMaxBytes, int64(maxEntries)*(workload.HashLen+128)), MaxEntries: int64(maxEntries), Places: 1, Groups: [][]int{{0}},
	})
	return &boundedIndex{Index: x}, err
}

func (x *boundedIndex) leading(hashes []byte) int {
	x.Begin(&x.cursor, workload.HashLen)
	defer x.End(&x.cursor)
	n := 0
	for len(hashes) > 0 {
		filled, covered, _ := x.Probe(&x.cursor, hashes, 1, x.runs[:], true)
		for _, run := range x.runs[:filled] {
			if run.Coverage == nil || run.Coverage.Complete&1 == 0 {
				return n
			}
			n += run.N
		}
		hashes = hashes[covered*workload.HashLen:]
	}
	return n
}

func (x *boundedIndex) store(hashes []byte) error {
	return x.Store(new(index.Writer), []int{0}, hashes, workload.HashLen)
}

func (x *boundedIndex) entries() int64 { return x.Stats().Entries }

// blocksOf reads a trace as numbers of blocks in their context: equal numbers mean equal prefixes.
func blocksOf(ctx context.Context, t workload.Trace) ([][]uint32, error) {
	var known workload.Model
	var requests [][]uint32
	err := t.Each(ctx, workload.BlockTokens, 0, func(_ int, ids []uint64) error {
		requests = append(requests, known.Number(ids))
		return nil
	})
	return requests, err
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("trace", "%s", r.Trace)
	t.Line("requests", "%s", measure.Grouped(int64(r.Requests)))
	t.Line("blocks", "%s of %d tokens", measure.Grouped(r.Hashes), r.BlockSize)
	t.Text("\nBlocks that hit:")
	t.Heads("entries", "hitline", "LRU", "tail-first LRU", "clairvoyant")
	for _, row := range r.Rows {
		t.Row(row.Capacity, row.Hitline, row.LRU, row.TailLRU, row.Belady)
	}
	return t.Write(w)
}
