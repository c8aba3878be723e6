//go:build linux

package holders

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Run fills the indexes, compares their answers and measures them. A report with wrong answers
// is not an error. If ctx ends, the report says that it is partial. Not safe for concurrent use:
// until it returns it pins the threads of this process.
func Run(ctx context.Context, o Options) (Report, error) {
	allowed, err := process.Cores()
	if err = cmp.Or(o.Validate(), err); err != nil {
		return Report{}, err
	}
	o.Seed = cmp.Or(o.Seed, measure.RandomSeed())
	o.core = allowed[:1] // there is one
	undo, err := process.Placement{Client: o.core}.PinClient()
	if err != nil {
		return Report{}, fmt.Errorf("holders: %w", err)
	}
	defer undo()
	r := &runner{o: o, report: Report{
		Setup: measure.NewSetup(o.Seed), Holders: o.Holders, Hashes: o.Hashes, BlockSize: blockSize, Rounds: o.Rounds,
		Cores: o.core, Rivals: []string{}, Memory: []Memory{}, Rows: []Row{},
	}}
	err = measure.CauseOf(ctx, r.run(ctx))
	r.report.Partial = err != nil
	return r.report, err
}

// runner is one call of Run.
type runner struct {
	o       Options
	report  Report
	sides   []side
	batches []*batch
}

// side is what is asked, by its name in the report.
type side struct {
	name string
	index
}

// batch is the queries of one kind and number of hashes, which are numbered from first on.
type batch struct {
	hashes       int
	kind         string
	first, count int
	samples      map[string][]sample // of the rounds, by side
}

// sample is what the queries of a round took.
type sample struct{ lookups, ns int64 }

func (s sample) nsPerLookup() float64 { return float64(s.ns) / float64(s.lookups) }

func (r *runner) run(ctx context.Context) error {
	ours, err := newOurs(r.o)
	if err != nil {
		return err
	}
	w, err := r.fill(ctx, side{Fleet, ours})
	if err != nil {
		return err
	}
	whole := *ours
	whole.hashLen = hashLen
	r.sides = append(r.sides, side{Fleet32, &whole})
	for _, program := range r.o.Rivals {
		theirs, err := program.start(ctx, r.o)
		if theirs != nil {
			defer theirs.Stop()
		}
		if err != nil {
			return err
		}
		r.report.Rivals = append(r.report.Rivals, strings.TrimSpace(program.Name+" "+theirs.version))
		if _, err := r.fill(ctx, side{program.Name, theirs}); err != nil {
			return err
		}
	}
	for _, a := range w.apps {
		for _, kind := range Kinds() {
			if err := r.compareAnswers(ctx, a.hashes, kind, w.queries(a, kind)); err != nil {
				return err
			}
		}
	}
	return r.measure(ctx)
}

// fill stores the prompts in an index, and measures its memory before those that all share.
func (r *runner) fill(ctx context.Context, s side) (*chainSet, error) {
	r.sides = append(r.sides, s)
	w := newWorkload(r.o)
	stores := 0
	put := func(holder int, parent, keys []byte) error {
		if stores++; stores%256 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r.o.OnStep("fill "+s.name, min(w.blocks, r.o.Blocks), r.o.Blocks)
		}
		return s.store(ctx, holder, parent, keys)
	}
	if err := w.fill(put); err != nil {
		return nil, fmt.Errorf("holders: %s: %w", s.name, err)
	}
	r.report.Blocks, r.report.Entries = w.blocks, w.entries
	used, err := s.memory(ctx)
	if err != nil {
		return nil, err
	}
	r.report.Memory = append(r.report.Memory, Memory{Side: s.name, Bytes: used, BytesPerBlock: measure.Round(float64(used)/float64(w.blocks), 1)})
	if err := w.share(put); err != nil {
		return nil, fmt.Errorf("holders: %s: %w", s.name, err)
	}
	return w, nil
}

// compareAnswers gives the queries of a batch to all, and compares each answer with what was stored.
func (r *runner) compareAnswers(ctx context.Context, hashes int, kind string, queries []query) error {
	r.o.OnStep(fmt.Sprintf("%d hashes, %s: compare answers", hashes, kind), 0, 1)
	b := &batch{hashes: hashes, kind: kind, count: len(queries), samples: map[string][]sample{}}
	for _, before := range r.batches {
		b.first += before.count
	}
	r.batches = append(r.batches, b)
	for i, q := range queries {
		for _, s := range r.sides {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := s.add(ctx, q); err != nil {
				return err
			}
			got, err := s.answer(ctx, b.first+i)
			if err != nil {
				return err
			}
			r.report.Answers++
			if maps.Equal(got, q.want) {
				continue
			}
			if r.report.Wrong++; r.report.Wrong == 1 {
				r.o.OnNote(fmt.Sprintf("wrong: %s, %d hashes, %s, query %d: %v, expected %v", s.name, hashes, kind, i, got, q.want))
			}
		}
	}
	return nil
}

// measure makes a round that does not count, and then those that do.
func (r *runner) measure(ctx context.Context) error {
	runtime.GC() // of what was sent to the other processes
	for number := -1; number < r.o.Rounds; number++ {
		r.o.OnStep("rounds", max(number, 0), r.o.Rounds)
		for _, b := range r.batches {
			samples, err := r.measureRound(ctx, b)
			if err != nil {
				return err
			}
			for name, one := range samples {
				if number >= 0 {
					b.samples[name] = append(b.samples[name], one)
				}
			}
		}
	}
	for _, b := range r.batches {
		for _, s := range r.sides {
			r.report.Rows = append(r.report.Rows, b.row(s.name))
		}
	}
	return nil
}

// measureRound asks all sides each query of a batch, one side after the other, in an order that is the
// reverse one at every second query, and again until the round's time is up.
func (r *runner) measureRound(ctx context.Context, b *batch) (map[string]sample, error) {
	samples := map[string]sample{}
	sides := slices.Clone(r.sides)
	end := time.Now().Add(r.o.TimePerSide / time.Duration(r.o.Rounds) * time.Duration(len(sides)))
	for pass := 0; pass == 0 || time.Now().Before(end); pass++ {
		for query := range b.count {
			slices.Reverse(sides)
			for _, s := range sides {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				ns, err := s.measure(ctx, b.first+query)
				if err != nil {
					return nil, err
				}
				one := samples[s.name]
				samples[s.name] = sample{one.lookups + 1, one.ns + ns}
			}
		}
	}
	return samples, nil
}
