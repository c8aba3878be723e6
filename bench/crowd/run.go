//go:build linux

package crowd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Run measures all cells, each with a master of its own. On an error, and if ctx ends, the report is partial: it has the cells
// that were measured before.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	o.Seed = cmp.Or(o.Seed, measure.RandomSeed())
	r := runner{o: o, report: Report{
		Setup: measure.NewSetup(o.Seed), Release: newPool(1).VLLM, Trace: string(o.Trace), Window: o.Window.Seconds(),
		CacheTokens: o.CacheTokens, StoreTokens: o.StoreTokens, Rows: []Row{},
	}}
	err := measure.CauseOf(ctx, r.run(ctx))
	r.report.Partial = err != nil
	return r.report, err
}

// runner is one call of Run.
type runner struct {
	o        Options
	report   Report
	sessions *sessions
	mooncake process.Mooncake
	done     int // cells
}

func (r *runner) run(ctx context.Context) (err error) {
	if r.mooncake, err = process.FindMooncake(ctx, r.o.Python, r.o.Timeout); err != nil {
		return err
	}
	r.report.Python = r.mooncake.Versions
	if r.sessions, err = readSessions(ctx, r.o.Trace); err != nil {
		return err
	}
	for _, tp := range slices.Sorted(maps.Keys(r.o.Ways)) {
		for _, engines := range r.o.Engines {
			if err := r.measure(ctx, tp, engines); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure measures all ways with a number of engines. The ways alternate: each round has them in the opposite order.
func (r *runner) measure(ctx context.Context, tp, engines int) error {
	var cells []*cell
	for _, way := range r.o.Ways[tp] {
		n := engines
		if engines == Largest {
			if n = r.largest(tp, way); n == 0 {
				r.done += r.o.Rounds
				continue
			}
		}
		cells = append(cells, &cell{o: r.o, tp: tp, way: way, engines: n, total: &tally{}})
		r.report.Rows = append(r.report.Rows, Row{TP: tp, Way: way, Engines: n})
	}
	rows := r.report.Rows[len(r.report.Rows)-len(cells):]
	defer func() { // those that were not measured
		r.report.Rows = slices.DeleteFunc(r.report.Rows, func(row Row) bool { return row.Rounds == 0 })
	}()
	for round := range r.o.Rounds {
		for i := range cells {
			if round%2 == 1 {
				i = len(cells) - 1 - i
			}
			one := *cells[i]
			r.o.OnStep(one.String(), r.done, r.o.numCells())
			f, err := one.run(ctx, r.sessions, r.mooncake)
			if err != nil {
				return fmt.Errorf("%v: %w", &one, err)
			}
			if f.EvictedKeys == 0 {
				r.o.OnNote(fmt.Sprintf("%v: the store evicted nothing", &one))
			}
			rows[i].Figures = f
			rows[i].Rounds++
			r.done++
		}
	}
	return nil
}

// largest returns the largest number of engines at which the master and the generator each take less than maxShare of a core,
// as computed from the rows so far, or 0 if that is none that is new. Without lookups it is not looked for.
func (r *runner) largest(tp int, way Way) int {
	if way == None {
		return 0
	}
	row := r.report.find(tp, way)
	share := max(row.MasterShare(), row.GeneratorShare())
	n := min(int(0.95*maxShare/share*float64(row.Engines)), r.o.maxEngines(tp, way))
	if n <= row.Engines {
		r.o.OnNote(fmt.Sprintf("TP %d, %s: with %d engines the master or hitbench takes %.0f %% of a core", tp, way, row.Engines, 100*share))
		return 0
	}
	return n
}
