package load

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// SweepOptions says over what a sweep goes. Load and Server are those of each point; the
// sweep sets Load's Connect, Connections and Reset, and of Server all but Hitline,
// BlockTokens, Config and Groups.
type SweepOptions struct {
	Load   Options // closed loop; Duration 0: so that all points take about 40 s, if leastDuration allows; Warmup 0: by the connections
	Server ServerOptions

	Loops       []int // event loops of the servers; nil: 1, 2, 4, … and all cores of the server
	Connections []int // nil: 1, 2, 4, …, or 1, 4, 16, … with many loops, up to sweepConnections or what the limit of open files allows
	Rounds      int   // measurements of each point

	OnNote func(text string) // is told what limits the meaning of the figures; may be nil
	OnStep func(phase string, done, total int)

	run func(ctx context.Context, o Options) (Report, error) // Run, but for tests
}

const (
	// sweepConnections is how many connections are tried by default.
	sweepConnections = 4096
	// MaxRounds bounds the rounds.
	MaxRounds = 100
	// maxLoops bounds the event loops of a server.
	maxLoops = 1024
	// warmup is the least that goes before a point; thousands of connections take
	// longer until all are served alike.
	warmup     = 100 * time.Millisecond
	warmupEach = 100 * time.Microsecond // a connection
	warmupMost = time.Second
	// overhead is about what a run takes beside its warm-up and duration.
	overhead = 150 * time.Millisecond
	// sweepTime is how long all runs may take by default.
	sweepTime = 40 * time.Second
	// leastDuration of a run by default: 2,000 lookups of one connection and up.
	leastDuration = 100 * time.Millisecond
	// manyRuns is from how many on the numbers of connections grow fourfold by default:
	// else sweepTime leaves a run less than leastDuration.
	manyRuns = 100
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o SweepOptions) Validate() error {
	for _, n := range o.Loops {
		if err := measure.CheckRange("loops", n, 1, maxLoops); err != nil {
			return err
		}
	}
	for _, n := range o.Connections {
		if err := measure.CheckRange("connections", n, 1, MaxConnections); err != nil {
			return err
		}
	}
	if len(o.Load.Rates) > 0 {
		return measure.BadOptions("a sweep over connections and loops has no rates; several rates are a sweep of their own")
	}
	l := o.Load
	l.Connections = 1
	if l.Duration == 0 && l.Requests == 0 {
		l.Duration = leastDuration
	}
	return cmp.Or(measure.CheckRange("rounds", o.Rounds, 1, MaxRounds), l.Validate())
}

// sweep is one call of Sweep.
type sweep struct {
	o    SweepOptions
	most int // connections that the limit of open files allows
	done int // runs
	SweepReport
}

// Sweep measures the load at each number of connections against servers of each number of
// event loops, all once in every round, in an order that is drawn for the round: what changes
// over time, such as the processor's clock, then does not look like an effect of either. The
// servers of a round run side by side; those that are not asked meanwhile wait in the kernel.
// Each point begins with an empty index. Wrong and refused answers are counted and are no
// error. On an error the report has the points that were measured before, with the rounds that
// they had, and is partial. Like Run it keeps this process to the client's cores.
func Sweep(ctx context.Context, o SweepOptions) (SweepReport, error) {
	if err := o.Validate(); err != nil {
		return SweepReport{}, err
	}
	if o.run == nil {
		o.run = Run
	}
	o.Load = o.Load.withDefaults()
	where := process.Placement{Client: o.Load.ClientCores, Server: o.Load.ServerCores}
	if where.Client == nil || where.Server == nil {
		cores, err := process.Cores()
		if err != nil {
			return SweepReport{}, err
		}
		where = process.Placement{Client: cores, Server: cores, Shared: true}
	}
	unpin, err := where.PinClient() // before servers start: their threads here are pinned to others
	if err != nil {
		return SweepReport{}, err
	}
	defer unpin()
	s := newSweep(o, where, mostConnections())
	for _, note := range s.notes() {
		s.note(note)
	}
	for round := 0; round < o.Rounds && err == nil; round++ {
		err = s.measureRound(ctx, round)
	}
	s.summarize(err != nil)
	if err == nil {
		s.noteClient()
	}
	return s.SweepReport, err
}

// newSweep fills in the lists and how long a point is measured.
func newSweep(o SweepOptions, where process.Placement, most int) *sweep {
	s := &sweep{most: most}
	if o.Loops == nil {
		cores := max(len(where.Server), 1)
		o.Loops = append(powers(2, cores), cores)
	}
	o.Loops = sortedSet(o.Loops)
	if o.Connections == nil {
		most = min(sweepConnections, most)
		if o.Connections = powers(2, most); o.Rounds*len(o.Loops)*len(o.Connections) > manyRuns {
			o.Connections = powers(4, most)
		}
	}
	o.Connections = sortedSet(o.Connections)
	if o.Load.Duration == 0 && o.Load.Requests == 0 {
		each := sweepTime/time.Duration(o.Rounds*len(o.Loops)*len(o.Connections)) - overhead
		for _, n := range o.Connections {
			each -= o.warmup(n) / time.Duration(len(o.Connections))
		}
		o.Load.Duration = min(max(each, leastDuration), time.Second)
	}
	s.o, s.SweepReport = o, SweepReport{Asked: o.Load.asked(), Placement: where, Rounds: o.Rounds, Seconds: o.Load.Duration.Seconds(), Peaks: []Peak{}}
	s.Entries = o.Load.Entries
	for _, loops := range o.Loops {
		for _, connections := range o.Connections {
			s.Points = append(s.Points, Point{Loops: loops, Connections: connections})
		}
	}
	return s
}

// sortedSet returns the numbers sorted, each once.
func sortedSet(numbers []int) []int { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

// powers returns the powers of base from 1 up to most.
func powers(base, most int) (numbers []int) {
	for n := 1; n <= most; n *= base {
		numbers = append(numbers, n)
	}
	return numbers
}

func (o SweepOptions) warmup(connections int) time.Duration {
	return cmp.Or(o.Load.Warmup, min(warmup+time.Duration(connections)*warmupEach, warmupMost))
}

// order returns the points in the order of a round. The same seed gives the same.
func (s *sweep) order(round int) []*Point {
	points := make([]*Point, len(s.Points))
	for i, at := range rand.New(rand.NewPCG(s.o.Load.Seed, uint64(round))).Perm(len(points)) {
		points[i] = &s.Points[at]
	}
	return points
}

// notes says what limits the meaning of the figures.
func (s *sweep) notes() (notes []string) {
	if s.Shared {
		notes = append(notes, "client and server share the cores: what loops add means nothing, and there is no slope; it takes three cores")
	}
	if most := slices.Max(s.o.Connections); most > s.most {
		notes = append(notes, fmt.Sprintf("%d connections may be more than the limit of open files allows, which is %d; raise it (ulimit -n)", most, s.most))
	} else if s.most < sweepConnections {
		notes = append(notes, fmt.Sprintf("the limit of open files allows %d connections; raise it (ulimit -n) for more", s.most))
	}
	if most := slices.Max(s.o.Loops); !s.Shared && most > len(s.Server) {
		notes = append(notes, fmt.Sprintf("%s have only %s: the slope leaves them out", plural(most, "loop"), plural(len(s.Server), "core")))
	}
	return notes
}

func (s *sweep) note(text string) {
	if s.o.OnNote != nil {
		s.o.OnNote(text)
	}
}

// measureRound measures all points once.
func (s *sweep) measureRound(ctx context.Context, round int) error {
	servers := map[int]*process.Process{} // by loops
	defer func() {
		for _, server := range servers {
			server.Stop()
		}
	}()
	for _, loops := range s.o.Loops {
		o := s.o.Server
		o.Loops, o.Connections, o.Cores, o.Timeout = loops, slices.Max(s.o.Connections), s.ServerCores(), s.o.Load.Timeout
		_, most := s.o.Load.Hashes.bounds()
		o.Entries = 2*s.o.Load.Entries + 10*most // whole chains are stored, ten at least
		server, err := StartServer(ctx, o)
		if err != nil {
			return err
		}
		servers[loops] = server
	}
	for _, p := range s.order(round) {
		if s.o.OnStep != nil {
			s.o.OnStep("points", s.done, s.Rounds*len(s.Points))
		}
		if err := s.measurePoint(ctx, servers[p.Loops], p); err != nil {
			return fmt.Errorf("%s, %d connections: %w", plural(p.Loops, "loop"), p.Connections, err)
		}
		s.done++
	}
	return nil
}

// measurePoint measures a point in one round.
func (s *sweep) measurePoint(ctx context.Context, server *process.Process, p *Point) error {
	o := s.o.Load
	o.Connect, o.Connections, o.Reset, o.Warmup = server.Addr(), p.Connections, true, s.o.warmup(p.Connections)
	o.ClientCores, o.ServerCores = nil, nil // as all of this process is on them already
	if o.Threads == 0 && !s.Shared {
		o.Threads = len(s.Client) // all of the half; Run would take half of it again
	}
	var busy busyness
	o.OnSample = func(Sample) { busy.sample(server) }
	r, err := s.o.run(ctx, o)
	s.Wrong += r.Wrong // also of a run that failed
	s.Refused += r.Refused
	if err != nil {
		return err
	}
	p.add(r, busy.cores())
	return nil
}

// noteClient says so if the client, and not the server, bounds the last peak.
func (s *sweep) noteClient() {
	last := s.Peaks[len(s.Peaks)-1]
	if s.Shared || last.ServerCPU == 0 || last.ServerCPU >= 0.8*float64(min(last.Loops, len(s.Server))) {
		return
	}
	text := fmt.Sprintf("at its peak the server kept %.2f cores busy with %s: the client bounds it", last.ServerCPU, plural(last.Loops, "loop"))
	if s.Slope != nil {
		text += ", and the slope is too low"
	}
	s.note(text)
}

// busyness is the CPU time that a process had used at each of some times.
type busyness struct {
	used []time.Duration
	at   []time.Time
}

func (b *busyness) sample(p *process.Process) {
	if used, err := p.CPU(); err == nil { // else it has ended, which the run tells
		b.used, b.at = append(b.used, used), append(b.at, time.Now())
	}
}

// cores returns how many cores the process kept busy between the first time and the last.
func (b *busyness) cores() float64 {
	last := len(b.at) - 1
	if last < 1 {
		return 0
	}
	return measure.Round(float64(b.used[last]-b.used[0])/float64(b.at[last].Sub(b.at[0])), 3)
}
