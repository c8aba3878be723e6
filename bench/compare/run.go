//go:build linux

package compare

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// runner is one call of Run.
type runner struct {
	o      Options
	report Report
}

// Run starts the rivals, measures them, and stops them. A report with wrong
// answers is not an error. If ctx ends, the report holds the numbers of hashes that
// were done. Not safe for concurrent use: until it returns it pins the threads of
// this process and stops its garbage collector.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	allowed, err := process.Cores()
	if err != nil {
		return Report{}, err
	}
	placement := process.Halves(allowed, process.SystemCPUs())
	if !placement.Shared { // one client asks
		placement.Client = placement.Client[:1]
	}
	o.Seed = cmp.Or(o.Seed, measure.RandomSeed())
	r := &runner{o: o, report: Report{
		Setup: measure.NewSetup(o.Seed), Hashes: o.Hashes, BlockSize: blockSize, HitShare: o.HitShare, RotateBytes: o.Rotate,
		Rounds: o.Rounds, Pipeline: o.Pipeline, Placement: placement, Rows: []Row{}, Skipped: []Skipped{},
	}}
	if placement.Shared {
		o.OnNote("client and servers share their cores: nothing is pinned, and the ratios mean little")
	}
	if !placement.Shared {
		defer func() { _ = process.Pin(allowed...) }() // it was allowed before
	}
	if err = r.measure(ctx); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.report.Partial = err != nil
	return r.report, err
}

// measure makes the rows.
func (r *runner) measure(ctx context.Context) error {
	// The goroutine that is told of signals needs a thread while this one is blocked in
	// a system call that the scheduler does not know of.
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	if cores := r.report.Placement.ClientCores(); cores != nil {
		if err := process.Pin(cores...); err != nil {
			return err
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, hashes := range r.o.Hashes {
		if err := r.measureSize(ctx, hashes); err != nil {
			return err
		}
		runtime.GC() // the chains of the last number of hashes
	}
	return nil
}

// measureSize measures all rivals at one number of hashes.
func (r *runner) measureSize(ctx context.Context, hashes int) error {
	s := &servers{o: r.o, load: newLookups(r.o, hashes), placement: r.report.Placement}
	r.report.Chains = append(r.report.Chains, s.load.Len())
	r.report.Entries += s.load.Entries()
	defer s.stop()
	err := s.startAll(ctx)
	for _, skipped := range s.skipped {
		if !slices.Contains(r.report.Skipped, skipped) { // at another number of hashes
			r.report.Skipped = append(r.report.Skipped, skipped)
		}
	}
	if err != nil {
		return err
	}
	m := &measurement{o: r.o, load: s.load}
	defer m.close()
	if err := m.open(ctx, s.rivals); err != nil {
		return err
	}
	err = m.run(ctx)
	for _, sampler := range m.samplers {
		r.report.Wrong += sampler.wrong
		if sampler.firstWrong != "" {
			r.o.OnNote("wrong: " + sampler.firstWrong)
		}
	}
	if err != nil {
		return err
	}
	r.report.Rows = append(r.report.Rows, m.rows()...)
	return nil
}
