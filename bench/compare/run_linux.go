package compare

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/hitline/hitline/bench/internal/process"
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
	cores, err := process.ChooseCores(allowed, o.ClientCore, o.ServerCore)
	if err != nil {
		return Report{}, err
	}
	m := &meter{o: o, cores: cores, report: emptyReport(o, cores)}
	defer m.stop()
	if len(cores) > 0 {
		defer func() { _ = process.Pin(allowed...) }() // it was allowed before
	} else {
		o.OnNote("only one core to run on: nothing is pinned, and the ratios mean little")
	}
	err = m.measure(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.report.Partial = err != nil
	return m.report, err
}

// emptyReport returns the report before the first row.
func emptyReport(o Options, cores []int) Report {
	r := Report{
		Hashes: o.Hashes, HashTokens: o.HashTokens, HitShare: o.HitShare, MissAt: o.MissAt, Rounds: o.Rounds,
		Cores: append([]int{}, cores...), Rows: []Row{}, Skipped: []Skipped{},
	}
	for _, hashes := range o.Hashes {
		r.Entries += max(MinChains, (o.Entries+hashes-1)/hashes) * hashes
	}
	return r
}

// meter is one call of Run.
type meter struct {
	o      Options
	cores  []int // of the client and of the servers; nil: not pinned
	report Report

	rivals  []*rival // without the floor
	servers []*process.Process
	closers []func()
}

// stop closes and stops what was started.
func (m *meter) stop() {
	for _, close := range m.closers {
		close()
	}
	for _, p := range m.servers {
		p.Stop()
	}
}

// measure makes the rows.
func (m *meter) measure(ctx context.Context) error {
	if err := m.startAll(ctx); err != nil {
		return err
	}
	// The goroutine that is told of signals needs a place to run while this one is
	// blocked in a system call that the scheduler does not know of.
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	if m.cores != nil {
		if err := process.Pin(m.cores[0]); err != nil {
			return fmt.Errorf("compare: %w", err)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, hashes := range m.o.Hashes {
		if err := m.cell(ctx, hashes); err != nil {
			return err
		}
	}
	return nil
}

// cell measures all rivals at one number of hashes.
func (m *meter) cell(ctx context.Context, hashes int) error {
	load := newWorkload(hashes, m.o.HashTokens, m.o.Entries)
	rivals := slices.Clone(m.rivals)
	if m.o.wants(Floor) {
		floor, err := m.startFloor(ctx, load)
		if err != nil {
			return err
		}
		rivals = append([]*rival{floor}, rivals...)
	}
	c := &cell{o: m.o, hashes: hashes}
	defer c.close()
	if err := c.open(ctx, load, rivals); err != nil {
		return err
	}
	err := c.run(ctx)
	for _, l := range c.lanes {
		m.report.Wrong += l.wrong
		if l.firstFlaw != "" {
			m.o.OnNote("wrong: " + l.firstFlaw)
		}
	}
	if err != nil {
		return err
	}
	m.report.Rows = append(m.report.Rows, c.rows()...)
	return nil
}
