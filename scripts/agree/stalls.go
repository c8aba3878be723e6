//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/lookup/client"
)

const (
	stallLength = 100 * time.Millisecond
	stallPeriod = time.Second

	warmup       = time.Second // of hitbench
	stallHashes  = 64          // of hitbench's lookups
	observerRate = 1000        // lookups a second, of one hash
)

// stallRow is a load during which the server is stopped.
type stallRow struct {
	across      bool // once, across the end, instead of every second
	open        bool // loop
	connections int
}

// name is that of --only.
func (r stallRow) name() string {
	when, loop := "second", "closed"
	if r.across {
		when = "end"
	}
	if r.open {
		loop = "open"
	}
	return fmt.Sprintf("%s-%s-%d", when, loop, r.connections)
}

// stallRows returns all rows. A closed loop comes before the open one that gets its rate of it.
func stallRows() (rows []stallRow) {
	for _, across := range []bool{false, true} {
		for _, connections := range []int{1, 4} {
			rows = append(rows, stallRow{across, false, connections}, stallRow{across, true, connections})
		}
	}
	return rows
}

// stallReport is the result of the rows with stalls.
type stallReport struct {
	Setup     measure.Setup `json:"setup"`
	Seconds   float64       `json:"seconds"`
	Tolerance float64       `json:"tolerance"`
	Stalls    []stallResult `json:"stalls"`
}

// stallResult is one row. Latencies are in µs, lengths of stalls in ms.
type stallResult struct {
	Row         string  `json:"row"`
	Connections int     `json:"connections"`
	Rate        float64 `json:"rate"` // lookups a second; 0 in a closed loop

	Stalls     int     `json:"stalls"` // that began in the measured time
	StallLeast float64 `json:"stall_ms_least"`
	StallMost  float64 `json:"stall_ms_most"`

	Hitbench  result `json:"hitbench"`
	Observer  result `json:"observer"`
	P99Agrees bool   `json:"p99_agrees"`
	MaxAgrees bool   `json:"max_agrees"`
}

// interval is half-open, in ns of CLOCK_MONOTONIC.
type interval struct{ from, to int64 }

// measureStalls runs the rows.
func measureStalls(ctx context.Context, b *bed, rows []stallRow) (report, error) {
	r := &stallReport{Setup: measure.NewSetup(b.o.seed), Seconds: b.o.seconds, Tolerance: b.o.tolerance}
	rates := map[int]float64{} // of the closed loops, by connections
	for _, row := range rows {
		l := load{connections: row.connections, hashes: stallHashes}
		if row.open {
			if rates[row.connections] == 0 {
				measured, err := b.runHitbench(ctx, l)
				if err != nil {
					return r, fmt.Errorf("%s: %w", row.name(), err)
				}
				rates[row.connections] = measured.RequestsPerSecond
			}
			// What waits after a stall must be answered soon, or it makes the observer's waits and
			// those of hitbench differ.
			l.rate = rates[row.connections] / 10
		}
		result, err := b.measureStall(ctx, row, l)
		if err != nil {
			return r, fmt.Errorf("%s: %w", row.name(), err)
		}
		if !row.open {
			rates[row.connections] = result.Hitbench.RequestsPerSecond
		}
		b.progress("%s: hitbench p99 %.1f ms, maximum %.1f ms; observer %.1f, %.1f ms", row.name(),
			result.Hitbench.P99us/1e3, result.Hitbench.Maxus/1e3, result.Observer.P99us/1e3, result.Observer.Maxus/1e3)
		r.Stalls = append(r.Stalls, result)
	}
	return r, nil
}

// measureStall runs one row: hitbench, the observer beside it, and the stalls.
func (b *bed) measureStall(ctx context.Context, row stallRow, l load) (s stallResult, err error) {
	s = stallResult{Row: row.name(), Connections: l.connections, Rate: round3(l.rate)}
	o, err := b.startObserver(ctx)
	if err != nil {
		return s, err
	}
	defer o.kill()
	watch, err := b.watchLookups(ctx)
	if err != nil {
		return s, err
	}
	defer watch.stat.Close()
	var measured interval // by hitbench
	var made []interval   // stalls
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		s.Hitbench, err = b.runHitbench(groupCtx, l)
		return err
	})
	group.Go(func() error {
		at, err := watch.awaitFirst(groupCtx)
		if err != nil {
			return err
		}
		measured = interval{at + int64(warmup), at + int64(warmup+b.o.duration())}
		made, err = b.server.stopAsPlanned(groupCtx, planStalls(row, measured))
		return err
	})
	if err := group.Wait(); err != nil {
		return s, err
	}
	// Hitbench may have ended a little earlier than the counters made it seem.
	if err := sleepUntil(ctx, measured.to); err != nil {
		return s, err
	}
	samples, err := o.finish()
	if err != nil {
		return s, err
	}
	if s.Observer, err = observed(samples, measured); err != nil {
		return s, err
	}
	s.countStalls(made)
	s.P99Agrees = agrees(s.Hitbench.P99us/s.Observer.P99us, b.o.tolerance)
	s.MaxAgrees = agrees(s.Hitbench.Maxus/s.Observer.Maxus, b.o.tolerance)
	return s, nil
}

// countStalls describes the stalls that were made.
func (s *stallResult) countStalls(made []interval) {
	var lengths []float64 // ms
	for _, m := range made {
		lengths = append(lengths, round3(float64(m.to-m.from)/1e6))
	}
	s.Stalls, s.StallLeast, s.StallMost = len(made), slices.Min(lengths), slices.Max(lengths)
}

// planStalls returns when the server is to be stopped. The stalls of every second lie within the
// measured time; the one across the end begins 70 ms before it.
func planStalls(row stallRow, measured interval) (plan []interval) {
	if row.across {
		from := measured.to - int64(stallLength)*7/10
		return []interval{{from, from + int64(stallLength)}}
	}
	for from := measured.from + int64(stallPeriod)*45/100; from+int64(stallLength) <= measured.to; from += int64(stallPeriod) {
		plan = append(plan, interval{from, from + int64(stallLength)})
	}
	return plan
}

// stopAsPlanned stops the server in each interval of a plan, and returns the intervals in which it
// was stopped. The server runs when stopAsPlanned returns.
func (s *server) stopAsPlanned(ctx context.Context, plan []interval) (made []interval, err error) {
	defer func() { err = errors.Join(err, s.signal(syscall.SIGCONT)) }()
	for _, p := range plan {
		if err := sleepUntil(ctx, p.from); err != nil {
			return made, err
		}
		if err := s.signal(syscall.SIGSTOP); err != nil {
			return made, err
		}
		from := monotonic()
		if err := sleepUntil(ctx, from+p.to-p.from); err != nil {
			return made, err
		}
		if err := s.signal(syscall.SIGCONT); err != nil {
			return made, err
		}
		made = append(made, interval{from, monotonic()})
	}
	return made, nil
}

func (s *server) signal(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("agree: cannot send the server %v: %w", sig, err)
	}
	return nil
}

// monotonic returns ns of CLOCK_MONOTONIC, by which the generator writes its samples.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails for unknown clocks only
	return t.Nano()
}

// sleepUntil returns an error if ctx is done first.
func sleepUntil(ctx context.Context, when int64) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Duration(when - monotonic())):
		return nil
	}
}

// lookupWatch finds out when hitbench begins to look up, by the server's counters.
type lookupWatch struct {
	stat            *client.Client
	lookups, tokens int64 // counters before hitbench was started
}

// watchLookups begins to watch. The caller closes stat.
func (b *bed) watchLookups(ctx context.Context) (*lookupWatch, error) {
	c, err := client.Dial(ctx, "tcp://"+b.server.addr)
	if err != nil {
		return nil, fmt.Errorf("agree: %w", err)
	}
	stat, err := readStat(ctx, c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &lookupWatch{c, stat.Lookups, stat.HitTokens}, nil
}

// awaitFirst waits for the first lookups of hitbench and returns when they came, to a few ms. The
// observer looks up meanwhile: its lookups hit one block each, those of hitbench stallHashes.
func (w *lookupWatch) awaitFirst(ctx context.Context) (int64, error) {
	for {
		at := monotonic()
		stat, err := readStat(ctx, w.stat)
		if err != nil {
			return 0, err
		}
		blocks := (stat.HitTokens - w.tokens) / blockTokens
		// The two counters may be read a few lookups apart.
		if blocks-(stat.Lookups-w.lookups) > 3*stallHashes {
			return at, nil
		}
		if err := sleepUntil(ctx, at+int64(2*time.Millisecond)); err != nil {
			return 0, err
		}
	}
}

// observer is a generator that sends one small lookup every millisecond, from its start until
// it is told to finish.
type observer struct {
	*child
	samples string // file
	stderr  *bytes.Buffer
}

// startObserver starts the observer. The caller finishes or kills it.
func (b *bed) startObserver(ctx context.Context) (*observer, error) {
	o := &observer{samples: filepath.Join(b.dir, "samples"), stderr: &bytes.Buffer{}}
	l := load{connections: 1, hashes: 1, rate: observerRate}
	cmd := b.generatorCommand(ctx, l, "--entries", "1", "--warmup", "0", "--seconds", "3600", "--samples", o.samples)
	cmd.Stderr = o.stderr
	var err error
	o.child, err = startOn(b.clients, cmd)
	return o, err
}

// sample is the wait of one lookup.
type sample struct{ due, latency int64 } // ns

// finish ends the observer and returns what it saw.
func (o *observer) finish() (all []sample, err error) {
	_ = o.cmd.Process.Signal(syscall.SIGTERM) // if it has ended, wait says how
	if err := o.wait(); err != nil {
		return nil, fmt.Errorf("agree: the observer: %w: %s", err, o.stderr)
	}
	return readSamples(o.samples)
}

// readSamples reads what the generator writes with --samples.
func readSamples(path string) (all []sample, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("agree: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var s sample
		if _, err := fmt.Sscan(lines.Text(), &s.due, &s.latency); err != nil {
			return nil, fmt.Errorf("agree: %s: %w", path, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// observed returns the waits of the lookups that were due in an interval.
func observed(all []sample, in interval) (r result, err error) {
	var waits []float64 // µs
	for _, s := range all {
		if s.due >= in.from && s.due < in.to {
			waits = append(waits, float64(s.latency)/1e3)
		}
	}
	due := (in.to - in.from) * observerRate / int64(time.Second)
	if int64(len(waits)) < due-1 || len(waits) == 0 {
		return r, fmt.Errorf("agree: the observer saw %d waits in the measured time; %d were due", len(waits), due)
	}
	slices.Sort(waits)
	return result{
		Requests: int64(len(waits)), RequestsPerSecond: observerRate,
		P50us: percentile(waits, 50), P99us: percentile(waits, 99), Maxus: percentile(waits, 100),
	}, nil
}
