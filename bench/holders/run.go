package holders

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Run fills both indexes, compares their answers and measures them. A report with wrong answers
// is not an error. If ctx ends, the report says that it is partial. Not safe for concurrent use:
// until it returns it pins the threads of this process.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	allowed, err := process.Cores()
	if err != nil {
		return Report{}, fmt.Errorf("holders: %w", err)
	}
	if o.Seed == 0 {
		o.Seed = measure.RandomSeed()
	}
	r := &runner{o: o, report: emptyReport(o)}
	if len(allowed) > 0 {
		if o.Core < 0 {
			o.Core = allowed[0]
		}
		if err := process.CheckCores([]int{o.Core}, allowed); err != nil {
			return Report{}, err
		}
		r.cores = []int{o.Core}
		r.report.Cores = r.cores
		undo, err := process.Placement{Client: r.cores}.PinClient()
		if err != nil {
			return Report{}, fmt.Errorf("holders: %w", err)
		}
		defer undo()
	}
	err = r.run(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.report.Partial = err != nil
	return r.report, err
}

// runner is one call of Run.
type runner struct {
	o       Options
	cores   []int
	report  Report
	indexes []namedIndex
	batches []*batch
}

// namedIndex is an index with the sides that measure it.
type namedIndex struct {
	index
	sides []string
}

// batch is the queries of one kind and number of hashes, which are numbered from first on.
type batch struct {
	hashes int
	kind   string
	first  int
	want   [][]int            // blocks, by query and holder
	rounds map[string][]round // by side
}

// round is what one round measured.
type round struct {
	sample
	nsPerLookup float64
}

func (r *runner) run(ctx context.Context) error {
	ours, err := newOurs(r.o)
	if err != nil {
		return err
	}
	w, err := r.fill(ctx, Fleet, ours)
	if err != nil {
		return err
	}
	r.report.Blocks, r.report.Entries = w.blocks, w.stored
	r.indexes = []namedIndex{{ours, []string{Fleet}}}
	if r.o.LLMD != "" {
		if r.report.LLMD, err = versionOf(ctx, r.o); err != nil {
			return err
		}
		theirs, err := startTheirs(ctx, r.o, r.cores)
		if theirs != nil {
			defer theirs.Stop()
		}
		if err != nil {
			return err
		}
		if _, err := r.fill(ctx, LLMD, theirs); err != nil {
			return err
		}
		r.indexes = append(r.indexes, namedIndex{theirs, []string{LLMD, LLMDLookup}})
	}
	if err := r.addQueries(ctx, w); err != nil {
		return err
	}
	if err := r.compareAnswers(ctx); err != nil {
		return err
	}
	return r.measure(ctx)
}

// fill stores the prompts in an index, and measures its memory before those that all share.
func (r *runner) fill(ctx context.Context, name string, x index) (*chainSet, error) {
	w := newWorkload(r.o)
	stores := 0
	put := func(holder int, keys []byte) error {
		if stores++; stores%256 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r.o.OnStep("fill "+name, min(w.blocks, r.o.Blocks), r.o.Blocks)
		}
		return x.store(ctx, holder, keys)
	}
	if err := w.fill(put); err != nil {
		return nil, fmt.Errorf("holders: %s: %w", name, err)
	}
	w.stored = w.entries
	used, stated, err := x.memory(ctx)
	if err != nil {
		return nil, err
	}
	perBlock := func(bytes int64) float64 { return round1(float64(bytes) / float64(w.blocks)) }
	r.report.Memory = append(r.report.Memory, Memory{Side: name, Bytes: used, BytesPerBlock: perBlock(used), StatedPerBlock: perBlock(stated)})
	if err := w.share(put); err != nil {
		return nil, fmt.Errorf("holders: %s: %w", name, err)
	}
	return w, nil
}

// addQueries makes the queries and gives them to all.
func (r *runner) addQueries(ctx context.Context, w *chainSet) error {
	n := 0
	for _, a := range w.apps {
		for _, kind := range Kinds() {
			b := &batch{hashes: a.hashes, kind: kind, first: n, rounds: map[string][]round{}}
			for _, q := range w.queries(a, kind) {
				n++
				b.want = append(b.want, q.want)
				for _, x := range r.indexes {
					if err := x.add(ctx, q); err != nil {
						return err
					}
				}
			}
			r.batches = append(r.batches, b)
		}
	}
	return nil
}

// compareAnswers compares each answer with what was stored.
func (r *runner) compareAnswers(ctx context.Context) error {
	for _, b := range r.batches {
		r.o.OnStep(fmt.Sprintf("%d hashes, %s: compare answers", b.hashes, b.kind), 0, 1)
		for i, want := range b.want {
			expected := map[string]int{}
			for holder, blocks := range want {
				if blocks > 0 {
					expected[holderName(holder)] = blocks
				}
			}
			for _, x := range r.indexes {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				got, err := x.answer(ctx, b.first+i)
				if err != nil {
					return err
				}
				r.report.Answers++
				if maps.Equal(got, expected) {
					continue
				}
				if r.report.Wrong++; r.report.Wrong == 1 {
					r.o.OnNote(fmt.Sprintf("wrong: %s, %d hashes, %s, query %d: %v, expected %v", x.sides[0], b.hashes, b.kind, i, got, expected))
				}
			}
		}
	}
	return nil
}

// measure makes a round that does not count, and then those that do.
func (r *runner) measure(ctx context.Context) error {
	runtime.GC() // of what was sent to the other process
	perRound := r.o.TimePerSide / time.Duration(r.o.Rounds)
	for number := -1; number < r.o.Rounds; number++ {
		r.o.OnStep("rounds", max(number, 0), r.o.Rounds)
		for _, b := range r.batches {
			if err := r.measureBatch(ctx, b, perRound, number); err != nil {
				return err
			}
		}
	}
	for _, b := range r.batches {
		r.report.Rows = append(r.report.Rows, b.rows()...)
	}
	return nil
}

// measureBatch has all sides ask a batch, in an order that is the reverse one every second round.
func (r *runner) measureBatch(ctx context.Context, b *batch, d time.Duration, number int) error {
	type turn struct {
		index
		side string
	}
	var turns []turn
	for _, x := range r.indexes {
		for _, side := range x.sides {
			turns = append(turns, turn{x, side})
		}
	}
	for i := range turns {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t := turns[i]
		if number%2 != 0 {
			t = turns[len(turns)-1-i]
		}
		s, err := t.measure(ctx, t.side, b.first, len(b.want), d)
		if err != nil {
			return err
		}
		if number >= 0 {
			b.rounds[t.side] = append(b.rounds[t.side], round{s, float64(s.Ns) / float64(s.Lookups)})
		}
	}
	return nil
}
