package compare

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// goVersion is what this program, and the servers in it, were built with.
var goVersion = runtime.Version()

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
		return Report{}, fmt.Errorf("compare: %w", err)
	}
	var client []int
	if o.ClientCore >= 0 {
		client = []int{o.ClientCore}
	}
	placement, err := process.OneCore(client, o.ServerCores, allowed, process.SystemCPUs())
	if err != nil {
		return Report{}, err
	}
	if o.Seed == 0 {
		o.Seed = measure.RandomSeed()
	}
	r := &runner{o: o, report: emptyReport(o, placement)}
	if placement.Shared {
		o.OnNote("only one core to run on: nothing is pinned, and the ratios mean little")
	} else {
		defer func() { _ = process.Pin(allowed...) }() // it was allowed before
	}
	err = r.measure(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.report.Partial = err != nil
	return r.report, err
}

// emptyReport returns the report before the first row.
func emptyReport(o Options, placement process.Placement) Report {
	r := Report{
		Setup: measure.NewSetup(o.Seed), Hashes: o.Hashes, HashTokens: o.HashTokens, RotateBytes: o.Rotate, HitShare: o.HitShare, MissAt: o.MissAt,
		Rounds: o.Rounds, Placement: placement, Rows: []Row{}, Skipped: []Skipped{},
	}
	for _, hashes := range o.Hashes {
		r.Chains = append(r.Chains, o.numChains(hashes))
		r.Entries += o.numChains(hashes) * hashes
	}
	return r
}

// runner is one call of Run.
type runner struct {
	o      Options
	report Report
}

// measure makes the rows.
func (r *runner) measure(ctx context.Context) error {
	// The goroutine that is told of signals needs a thread while this one is blocked in
	// a system call that the scheduler does not know of.
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	if !r.report.Placement.Shared {
		if err := process.Pin(r.report.Placement.Client...); err != nil {
			return fmt.Errorf("compare: %w", err)
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
	meminfo, _ := os.ReadFile("/proc/meminfo") // not there: unknown
	s := &servers{
		o: r.o, load: newWorkload(r.o, hashes), available: availableMemory(meminfo) / 100 * memoryShare,
		serverCores: r.report.Placement.ServerCores(),
	}
	if !r.report.Placement.Shared {
		s.clientCores = r.report.Placement.Client
	}
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
