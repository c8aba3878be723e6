package scale

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/internal/process"
	"github.com/hitline/hitline/bench/load"
)

// Run starts a server for each number of loops, measures it at each number of
// connections, and stops it. Wrong and refused answers are counted and are no
// error. On an error the report has the points before it, and is partial. Not safe
// for concurrent use: it pins the threads of this process, until it returns.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	cores, err := process.Cores()
	if err != nil {
		return Report{}, fmt.Errorf("scale: %w", err)
	}
	most := mostConnections()
	s := &sweep{o: o, cores: cores, plan: o.planFor(split(cores, os.DirFS("/sys/devices/system/cpu")), most)}
	for _, note := range s.plan.notes(most) {
		s.note(note)
	}
	s.report = Report{
		Mode: "closed", Dialect: string(load.Raw), Hashes: o.Hashes, Pipeline: o.Pipeline, Entries: o.Entries,
		Client: s.plan.client, Server: s.plan.server, Shared: s.plan.shared, Seconds: s.plan.each.Seconds(), Points: []Point{}, Peaks: []Peak{},
	}
	if !s.plan.shared {
		runtime.GOMAXPROCS(len(s.plan.client)) // as many workers as the client has cores
		defer s.unpin()
	}
	for _, loops := range s.plan.loops {
		if err := s.server(ctx, loops); err != nil {
			s.report.Partial = true
			return s.report, err
		}
	}
	s.report.fit()
	s.noteClient()
	return s.report, nil
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
	o      Options
	cores  []int // of this process
	plan   plan
	report Report
}

// unpin lets this process run as it could before.
func (s *sweep) unpin() {
	_ = process.Pin(s.cores...) // it was allowed before
	runtime.SetDefaultGOMAXPROCS()
}

func (s *sweep) note(text string) {
	if s.o.OnNote != nil {
		s.o.OnNote(text)
	}
}

// server measures all points of a server of so many loops.
func (s *sweep) server(ctx context.Context, loops int) error {
	p, err := s.start(ctx, loops)
	if err != nil {
		return fmt.Errorf("%w: %w", load.ErrLost, err)
	}
	defer p.Stop()
	if !s.plan.shared {
		if err := process.Pin(s.plan.client...); err != nil {
			return fmt.Errorf("scale: %w", err)
		}
	}
	first := len(s.report.Points)
	for _, connections := range s.plan.connections {
		if s.o.OnStep != nil {
			s.o.OnStep("points", len(s.report.Points), s.plan.points())
		}
		if err := s.point(ctx, p, loops, connections); err != nil {
			return fmt.Errorf("%s, %d connections: %w", loopsName(loops), connections, err)
		}
	}
	s.report.peak(s.report.Points[first:])
	return nil
}

// start starts a server, whose threads inherit the cores of this process's.
func (s *sweep) start(ctx context.Context, loops int) (*process.Process, error) {
	if !s.plan.shared {
		if err := process.Pin(s.plan.server...); err != nil {
			return nil, err
		}
	}
	connections := s.plan.connections[len(s.plan.connections)-1]
	entries := (s.o.Entries + s.o.Hashes) * len(s.plan.connections) // each point stores its own
	cmd := process.Hitline(s.o.Hitline, blockTokens, process.HitlineBound(entries), "--backend", "memory", "--loops", strconv.Itoa(loops))
	cmd.Env = append(cmd.Env, "HITLINE_LIMITS_MAX_CONNECTIONS="+strconv.Itoa(max(4096, connections+64)))
	return process.Start(ctx, cmd, process.Options{Core: process.AnyCore, Timeout: s.o.Timeout})
}

// point measures at one number of connections.
func (s *sweep) point(ctx context.Context, p *process.Process, loops, connections int) error {
	o := s.o.load(p.Addr(), connections, s.plan.each)
	var busy busyness
	o.OnSample = func(load.Sample) { busy.sample(p) }
	r, err := load.Run(ctx, o)
	s.report.Wrong += r.Wrong
	s.report.Errors += r.Errors
	if err != nil {
		return err
	}
	s.report.Points = append(s.report.Points, Point{
		Loops: loops, Connections: connections, Requests: r.Requests, RequestsPerSecond: r.RequestsPerSecond,
		P50us: r.P50us, P99us: r.P99us, ServerCPU: busy.cores(), Wrong: r.Wrong, Errors: r.Errors,
	})
	return nil
}

// noteClient says so if the client, and not the server, bounds the last peak.
func (s *sweep) noteClient() {
	last := s.report.Peaks[len(s.report.Peaks)-1]
	if s.plan.shared || last.ServerCPU == 0 || last.ServerCPU >= 0.8*float64(last.Loops) {
		return
	}
	s.note(fmt.Sprintf("at its peak the server kept %.2f cores busy with %d loops: the client bounds it, and the slope is too low", last.ServerCPU, last.Loops))
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
	return round3(float64(b.last-b.first) / float64(b.lastTime.Sub(b.firstTime)))
}
