//go:build linux

package vllm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/workload"
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
	cells := o.cells()
	for i, c := range cells {
		if err == nil {
			o.OnStep(c.String(), i, len(cells))
			err = m.measure(ctx, c)
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

	folder         string // of the Python files and of the sockets, removed by stop
	master         *process.Master
	hitlines       map[string]string // addresses, by side
	roles          []*process.Child
	store          *process.Child     // one of roles
	engine         *process.Child     // the last one of roles, once there is a shape
	shape          Shape              // of the engine
	hitlineServers []*process.Process // for the shape
	started        time.Time          // when hitlineServers were
}

// stop stops what was started.
func (m *meter) stop() {
	m.stopRoles(0)
	m.stopHitlines()
	if m.master != nil {
		m.master.Stop()
	}
	if m.folder != "" {
		_ = os.RemoveAll(m.folder)
	}
}

// stopHitlines stops the hitlines.
func (m *meter) stopHitlines() {
	for _, p := range m.hitlineServers {
		p.Stop()
	}
	m.hitlineServers = nil
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
	cmd := exec.Command(m.o.Python, "-B", m.path("over_master.py"), name, m.o.Release, m.folder, m.master.RPC)
	cmd.Env = append(process.Environ(), "PYTHONPATH="+m.folder, "PYTHONUNBUFFERED=1")
	r, err := process.StartChild(ctx, "the Python process "+name, cmd, process.Options{Timeout: m.o.Timeout})
	if err == nil {
		m.roles = append(m.roles, r)
	}
	return r, err
}

// measure measures a cell, and adds its rows to the report.
func (m *meter) measure(ctx context.Context, c cell) error {
	if m.shape != c.Shape {
		if err := m.startEngine(ctx, c.Shape); err != nil {
			return err
		}
	}
	rows, err := (&measurement{cell: c, o: m.o, store: m.store, engine: m.engine, started: m.started}).run(ctx)
	m.report.Rows = append(m.report.Rows, rows...)
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	return nil
}

// startEngine starts an engine and its hitlines in the place of those before, and tells the store its keys.
func (m *meter) startEngine(ctx context.Context, s Shape) error {
	m.stopRoles(1) // all but the store
	m.stopHitlines()
	if err := m.startHitlines(ctx); err != nil {
		return err
	}
	begin := func(r *process.Child) error {
		return r.Do(ctx, 0, request{"do": "start", "pool": workload.EnginePool(s.TP), "rank": 0, "hitlines": m.hitlines}, &struct{}{})
	}
	if err := begin(m.store); err != nil {
		return err
	}
	for _, name := range []string{"worker", "engine"} {
		r, err := m.startRole(ctx, name)
		if err == nil {
			err = begin(r)
		}
		if err != nil {
			return err
		}
		m.engine, m.shape = r, s
	}
	return nil
}
