package scale

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
)

// Run measures all points in each round, against servers that it starts for the
// round and stops. Wrong and refused answers are counted and are no error. On an
// error the report has the points that were measured before, with the rounds that
// they had, and is partial. Not safe for concurrent use: it pins the threads of this
// process, until it returns.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	if o.Seed == 0 {
		o.Seed = measure.RandomSeed()
	}
	if o.run == nil {
		o.run = load.Run
	}
	setup := measure.NewSetup(o.Seed)
	cores, err := process.Cores()
	if err != nil {
		return Report{}, fmt.Errorf("scale: %w", err)
	}
	most := mostConnections()
	s := &sweep{o: o, plan: o.planFor(process.Halves(cores, process.SystemCPUs()), most), tallies: map[pointKey]*tally{}}
	for _, note := range s.plan.notes(most) {
		s.note(note)
	}
	undo, err := s.plan.PinClient()
	if err != nil {
		return Report{}, fmt.Errorf("scale: %w", err)
	}
	defer undo()
	err = s.measure(ctx)
	r := s.report()
	r.Setup, r.Partial = setup, err != nil
	if err == nil {
		r.addPeaks()
		r.fit()
		s.noteClient(r)
	}
	return r, err
}

// mostConnections returns how many connections the limit of open files allows a
// process, which has others open too.
func mostConnections() int {
	const others = 128
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return MaxConnections
	}
	return int(max(min(limit.Cur, load.MaxConnections+others)-others, 1))
}

// sweep is one call of Run.
type sweep struct {
	o    Options
	plan plan

	tallies       map[pointKey]*tally
	done          int   // runs
	wrong, errors int64 // of all runs, also of one that failed
}

func (s *sweep) note(text string) {
	if s.o.OnNote != nil {
		s.o.OnNote(text)
	}
}

// report returns what was measured until now, without peaks.
func (s *sweep) report() Report {
	r := Report{
		Mode: "closed", Dialect: string(wire.Raw), Hashes: s.o.Hashes, Pipeline: s.o.Pipeline, Entries: s.o.Entries,
		Client: s.plan.Client, Server: s.plan.Server, Shared: s.plan.Shared, Rounds: s.plan.rounds, Seconds: s.plan.each.Seconds(),
		Points: []Point{}, Peaks: []Peak{}, Wrong: s.wrong, Errors: s.errors,
	}
	for _, at := range s.plan.keys() {
		if t := s.tallies[at]; t != nil {
			r.Points = append(r.Points, t.summarize())
		}
	}
	return r
}

// measure makes all rounds.
func (s *sweep) measure(ctx context.Context) error {
	for round := range s.plan.rounds {
		if err := s.measureRound(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// measureRound measures all points once.
func (s *sweep) measureRound(ctx context.Context, round int) error {
	servers := map[int]*process.Process{} // by loops
	defer func() {
		for _, p := range servers {
			p.Stop()
		}
	}()
	for _, loops := range s.plan.loops {
		p, err := s.start(ctx, loops)
		if err != nil {
			return err
		}
		servers[loops] = p
	}
	for _, at := range s.plan.order(s.o.Seed, round) {
		if s.o.OnStep != nil {
			s.o.OnStep("points", s.done, s.plan.runs())
		}
		if err := s.measurePoint(ctx, servers[at.loops], at); err != nil {
			return fmt.Errorf("%s, %d connections: %w", loopsName(at.loops), at.connections, err)
		}
		s.done++
	}
	return nil
}

// start starts a server of so many loops.
func (s *sweep) start(ctx context.Context, loops int) (*process.Process, error) {
	connections := s.plan.connections[len(s.plan.connections)-1]
	entries := s.o.Entries + 10*s.o.Hashes // load stores whole chains, ten at least
	cmd := process.Hitline(s.o.Hitline, blockTokens, process.HitlineBound(entries), "--backend", "memory", "--loops", strconv.Itoa(loops))
	cmd.Env = append(cmd.Env, process.ConnectionLimit(connections))
	return process.Start(ctx, cmd, process.Options{Cores: s.plan.ServerCores(), Timeout: s.o.Timeout})
}

// measurePoint measures a point in one round.
func (s *sweep) measurePoint(ctx context.Context, p *process.Process, at pointKey) error {
	o := s.plan.load(s.o, p.Addr(), at.connections)
	var busy busyness
	o.OnSample = func(load.Sample) { busy.sample(p) }
	r, err := s.o.run(ctx, o)
	s.wrong += r.Wrong
	s.errors += r.Errors
	if err != nil {
		return err
	}
	t := s.tallies[at]
	if t == nil {
		t = &tally{point: Point{Loops: at.loops, Connections: at.connections}}
		s.tallies[at] = t
	}
	t.add(r, busy.cores())
	return nil
}

// noteClient says so if the client, and not the server, bounds the last peak.
func (s *sweep) noteClient(r Report) {
	last := r.Peaks[len(r.Peaks)-1]
	if s.plan.Shared || last.ServerCPU == 0 || last.ServerCPU >= 0.8*float64(min(last.Loops, len(s.plan.Server))) {
		return
	}
	text := fmt.Sprintf("at its peak the server kept %.2f cores busy with %s: the client bounds it", last.ServerCPU, loopsName(last.Loops))
	if r.Slope != nil {
		text += ", and the slope is too low"
	}
	s.note(text)
}

// busyness is how many cores a process keeps busy between samples.
type busyness struct {
	first, last         time.Duration // CPU time
	firstTime, lastTime time.Time
}

func (b *busyness) sample(p *process.Process) {
	used, err := p.CPU()
	if err != nil {
		return // it has ended, which the run tells
	}
	b.last, b.lastTime = used, time.Now()
	if b.firstTime.IsZero() {
		b.first, b.firstTime = b.last, b.lastTime
	}
}

func (b *busyness) cores() float64 {
	if !b.lastTime.After(b.firstTime) {
		return 0
	}
	return measure.Round3(float64(b.last-b.first) / float64(b.lastTime.Sub(b.firstTime)))
}
