package vllm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Run starts a master, hitline and the release's processes, measures, and stops them. Answers
// that differ are no error, see [Report.Wrong]. On an error, and if ctx ends, the report is
// partial: it has the rows that were measured before.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	o.Seed = cmp.Or(o.Seed, measure.RandomSeed())
	m := &meter{o: o, report: Report{Setup: measure.NewSetup(o.Seed), Release: o.Release, Rounds: o.Rounds, Rows: []Row{}}}
	defer m.stop()
	err := m.prepare(ctx)
	shapes := o.shapes()
	for i, shape := range shapes {
		if err == nil {
			o.OnStep(shape.String(), i, len(shapes))
			err = m.measure(ctx, shape)
		}
	}
	err = measure.CauseOf(ctx, err)
	m.report.Partial = err != nil
	return m.report, err
}

// meter is one call of Run.
type meter struct {
	o      Options
	report Report

	folder                  string // of the Python files and of the sockets, removed by stop
	masterAddr, hitlineAddr string
	servers                 []*process.Process
	roles                   []*process.Child
	store                   *process.Child // one of roles
}

// stop stops what was started.
func (m *meter) stop() {
	m.stopRoles(0)
	for _, p := range slices.Backward(m.servers) {
		p.Stop()
	}
	if m.folder != "" {
		_ = os.RemoveAll(m.folder)
	}
}

// stopRoles stops roles[from:], the last one first.
func (m *meter) stopRoles(from int) {
	for _, r := range slices.Backward(m.roles[from:]) {
		r.Stop()
	}
	m.roles = m.roles[:from]
}

// startRole starts a Python process in one of the roles of over_master.py. stopRoles stops it.
func (m *meter) startRole(ctx context.Context, name string) (*process.Child, error) {
	cmd := exec.Command(m.o.Python, "-B", m.path("over_master.py"), name, m.o.Release, m.folder, m.masterAddr)
	cmd.Env = append(process.Environ(), "PYTHONPATH="+m.folder, "PYTHONUNBUFFERED=1")
	r, err := process.StartChild(ctx, "the Python process "+name, cmd, process.Options{Timeout: m.o.Timeout})
	if err == nil {
		m.roles = append(m.roles, r)
	}
	return r, err
}

// measure measures a shape with new engines, and adds its rows to the report.
func (m *meter) measure(ctx context.Context, s Shape) error {
	defer m.stopRoles(len(m.roles))
	begin := func(r *process.Child, rank int) error {
		return r.Do(ctx, 0, request{"do": "start", "pool": s.pool(), "rank": rank, "hitline": m.hitlineAddr}, &struct{}{})
	}
	if err := begin(m.store, 0); err != nil {
		return err
	}
	var engines []*process.Child
	for rank := range s.Engines {
		for _, name := range []string{"worker", "engine"} {
			r, err := m.startRole(ctx, name)
			if err != nil {
				return err
			}
			if err := begin(r, rank); err != nil {
				return err
			}
			if name == "engine" {
				engines = append(engines, r)
			}
		}
	}
	for _, presence := range presences {
		c := newCell(m.o, s, presence)
		c.store, c.engines = m.store, engines
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%v, %s stored: %w", s, presence, err)
		}
		m.report.Rows = append(m.report.Rows, c.row)
	}
	return nil
}
