//go:build linux

package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/netproto"
)

// Run connects, stores the chains, measures, and reports. Wrong and refused answers
// are counted, told to OnProblem, and are no error.
//
// On an error the report covers what was measured until then, and is partial if
// anything was. The error wraps [measure.ErrOptions], [measure.ErrLost] or [measure.ErrAnswer], or it
// is the cause of ctx being done. Everything that Run has started has ended when it
// returns.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	o.Seed = cmp.Or(o.Seed, measure.RandomSeed())
	unpin, err := o.Placement.PinClient()
	if err != nil {
		return Report{}, err
	}
	defer unpin()
	threads, _ := o.threads()
	r := &runner{o: o, epoch: time.Now()}
	r.report = Report{
		Setup: measure.NewSetup(o.Seed), Mode: "closed", Pipeline: o.Pipeline, Hashes: o.Hashes, HitShare: o.HitShare,
		Connect: o.Connect, Connections: o.Connections, Threads: threads, Placement: o.Placement, Steps: []Step{},
	}
	if len(o.Rates) > 0 {
		r.report.Mode = "open"
	}
	defer r.close()
	defer context.AfterFunc(ctx, func() { r.stopped.Store(true) })()
	err = measure.CauseOf(ctx, r.do(ctx))
	r.report.Partial = err != nil
	r.report.Wrong, r.report.Refused = r.wrong, r.refused
	return r.report, err
}

// runner is one call of Run.
type runner struct {
	o       Options
	epoch   time.Time   // times of the run count from here
	stopped atomic.Bool // all workers are to end

	lookups *lookups
	conns   []*conn
	workers []*worker
	report  Report

	processors int // that were added

	mu             sync.Mutex // guards what follows, and calls of OnProblem
	wrong, refused int64
}

// clock returns the ns of the run.
func (r *runner) clock() int64 { return int64(time.Since(r.epoch)) }

// do does all of it.
func (r *runner) do(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.prepare, r.connect, r.store, r.measure, r.verifyQuiet} {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// prepare learns about the server and makes the chains.
func (r *runner) prepare(ctx context.Context) error {
	control, err := wire.Dial(ctx, r.o.server())
	if err != nil {
		return err
	}
	defer control.Close()
	pool, err := learnPool(ctx, control)
	if err != nil {
		return err
	}
	if r.lookups, err = newLookups(r.o, pool); err != nil {
		return err
	}
	r.report.Entries = r.lookups.Entries()
	return nil
}

// connect makes all connections, a few at a time, and sees that the server answers
// on each.
func (r *runner) connect(ctx context.Context) error {
	r.o.OnStep("connect", 0, r.o.Connections)
	threads, blocking := r.o.threads()
	r.conns = make([]*conn, r.o.Connections)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range r.conns {
		group.Go(func() error {
			s, err := r.dial(groupCtx, blocking)
			if err != nil {
				return fmt.Errorf("connection %d of %d to %s: %w", i+1, len(r.conns), r.o.Connect, err)
			}
			r.conns[i] = newConn(i, r.o, s)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return r.startWorkers(threads)
}

func (r *runner) dial(ctx context.Context, blocking bool) (wire.Socket, error) {
	c, err := wire.Dial(ctx, r.o.server())
	if err != nil {
		return wire.Socket{}, err
	}
	if err := c.Ping(ctx); err != nil {
		c.Close()
		return wire.Socket{}, err
	}
	wait := wire.Wait{Again: true}
	if blocking {
		wait.Bound = tick
	}
	return c.Socket(wait)
}

// threads returns how many workers serve so many connections. A connection has a
// thread of its own, which blocks, if there are cores for that and nothing can be sent
// while an answer is awaited. Without a placement, many connections share half of the cores,
// as do those of an open loop, whose threads wait awake: the server has the others.
func (o Options) threads() (n int, blocking bool) {
	client := len(o.Placement.ClientCores())
	cores := cmp.Or(client, runtime.GOMAXPROCS(0))
	if o.Connections <= cores && len(o.Rates) == 0 {
		return o.Connections, true
	}
	n = min(o.Connections, cmp.Or(client, (cores+1)/2))
	return n, n == o.Connections && o.Pipeline == 1
}

// startWorkers makes the workers and deals the connections out to them.
func (r *runner) startWorkers(n int) error {
	addProcessors(n)
	r.processors = n
	for number := range n {
		var conns []*conn
		for i := number; i < len(r.conns); i += n {
			conns = append(conns, r.conns[i])
		}
		w, err := newWorker(number, r, conns)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, w)
	}
	return nil
}

// processors guards changes of the number of threads that run Go code.
var processors sync.Mutex

// addProcessors lets so many more threads run Go code, fewer if negative: workers
// keep theirs while they are blocked in the kernel.
func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	if n != 0 {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}
}

// close closes what is open, however far the run got.
func (r *runner) close() {
	addProcessors(-r.processors)
	for _, w := range r.workers {
		w.close()
	}
	for _, c := range r.conns {
		if c != nil {
			c.socket.Close()
		}
	}
}

// work has all workers do a stage. The first to fail ends the others.
func (r *runner) work(s stage) error {
	s.workers = len(r.workers)
	var group errgroup.Group
	for _, w := range r.workers {
		group.Go(func() error {
			err := w.work(s)
			if err != nil {
				r.stopped.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}

// store stores what is looked up, over all connections.
func (r *runner) store(context.Context) error {
	total := r.lookups.Len()
	for i, c := range r.conns {
		c.begin(r.lookups.storing(i*total/len(r.conns), (i+1)*total/len(r.conns)), -1)
	}
	r.o.OnStep("store", 0, total)
	err := r.work(stage{end: math.MaxInt64})
	if err == nil && r.refused > 0 {
		err = fmt.Errorf("%w: the server refused %d of %d stores", measure.ErrAnswer, r.refused, total)
	}
	return err
}

// measure does the steps.
func (r *runner) measure(ctx context.Context) error {
	rates := r.o.Rates
	if len(rates) == 0 {
		rates = []float64{0} // closed
	}
	sources := make([]source, len(r.conns))
	for i := range sources {
		sources[i] = r.lookups.mix(i)
	}
	runtime.GC() // what making the chains has left is not collected while measuring
	for step, rate := range rates {
		r.o.OnStep("measure", step, len(rates))
		for i, c := range r.conns {
			c.begin(sources[i], r.share(i))
		}
		if err := r.measureStep(rate); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// share returns how many of the requests to count a connection makes; negative:
// any number.
func (r *runner) share(i int) int64 {
	if r.o.Requests == 0 {
		return -1
	}
	n := int64(len(r.conns))
	return (r.o.Requests*int64(i+1))/n - r.o.Requests*int64(i)/n
}

// measureStep measures at one rate, 0 in a closed loop.
func (r *runner) measureStep(rate float64) error {
	start := r.clock()
	s := stage{start: start, begin: start + int64(r.o.Warmup), end: math.MaxInt64, measures: true}
	if r.o.Duration > 0 {
		s.end = s.begin + int64(r.o.Duration)
	}
	if rate > 0 {
		s.period = 1e9 / rate
	}
	wrong, refused := r.wrong, r.refused
	err := r.work(s)
	all := newTally(s.begin)
	for _, w := range r.workers {
		all.add(w.tally)
	}
	if rate > 0 && r.o.Requests > 0 && err == nil && !r.stopped.Load() {
		// The last request takes up its period like the others.
		all.to = max(all.to, s.begin+int64(float64(r.o.Requests)*s.period))
	}
	step := all.step(rate, r.o.Hashes)
	step.Wrong, step.Refused = r.wrong-wrong, r.refused-refused
	r.report.add(step, all)
	return err
}

// verifyQuiet pings on every connection: nothing may come before the echo.
func (r *runner) verifyQuiet(context.Context) error {
	request := netproto.AppendRequest(nil, nil, netproto.TagPing, wire.PingPayload)
	for _, c := range r.conns {
		c.begin(closing(request), -1)
	}
	return r.work(stage{end: math.MaxInt64})
}

// problem counts a wrong or refused answer and tells of it.
func (r *runner) problem(c *conn, a checkedReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.refused {
		r.refused++
	} else {
		r.wrong++
	}
	r.o.OnProblem(a.describe(c, r.o))
}
