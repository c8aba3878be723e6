package scale

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/measure"
)

// Options says what to measure. Hitline, Rounds, Hashes, Pipeline, Entries and
// Timeout are required.
type Options struct {
	Hitline string // path of the program

	Loops       []int // of the servers; nil: 1, 2, 4, … and all cores of the server
	Connections []int // nil: 1, 2, 4, …, or 1, 4, 16, … with many loops, up to MaxConnections or what the limit of open files allows
	Rounds      int   // measurements of each point

	Hashes   int           // a lookup, of which all hit
	Pipeline int           // lookups under way on a connection
	Entries  int           // least number of hashes in the index
	Duration time.Duration // of a point in a round; 0: so that all take about 40 s, if leastDuration allows
	Timeout  time.Duration // longest wait for a start, a connection or an answer
	Seed     uint64        // of the order and of the requests; 0 takes a random one

	OnNote func(text string) // is told what limits the meaning of the figures; may be nil
	OnStep func(phase string, done, total int)

	count int64                                                          // of requests of a run in place of a duration, for tests
	run   func(ctx context.Context, o load.Options) (load.Report, error) // load.Run, but for tests
}

const (
	// MaxConnections is how many connections are tried by default.
	MaxConnections = 4096
	// MaxRounds bounds the rounds.
	MaxRounds = 100

	blockTokens = 16
	// warmup is the least that goes before a point; thousands of connections take
	// longer until all are served alike.
	warmup     = 100 * time.Millisecond
	warmupEach = 100 * time.Microsecond // a connection
	warmupMost = time.Second
	// overhead is about what a run takes beside its warm-up and duration.
	overhead = 150 * time.Millisecond
	// budget is how long all runs may take by default.
	budget = 40 * time.Second
	// leastDuration of a run by default: 2,000 lookups of one connection and up.
	leastDuration = 100 * time.Millisecond
	// manyRuns is from how many on the numbers of connections grow fourfold by default:
	// else the budget leaves a run less than leastDuration.
	manyRuns = 100
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	for _, list := range []struct {
		what    string
		numbers []int
		most    int
	}{{"loops", o.Loops, 1024}, {"connections", o.Connections, load.MaxConnections}} {
		for _, n := range list.numbers {
			if n < 1 || n > list.most {
				return fmt.Errorf("%w: %d %s; give 1 to %d", measure.ErrOptions, n, list.what, list.most)
			}
		}
	}
	if o.Rounds < 1 || o.Rounds > MaxRounds {
		return fmt.Errorf("%w: %d rounds; give 1 to %d", measure.ErrOptions, o.Rounds, MaxRounds)
	}
	if o.Duration < 0 {
		return fmt.Errorf("%w: a duration of %v; it may not be negative", measure.ErrOptions, o.Duration)
	}
	if o.Timeout <= 0 {
		return fmt.Errorf("%w: a timeout of %v; it must be positive", measure.ErrOptions, o.Timeout)
	}
	return plan{each: time.Second}.load(o, "", 1).Validate()
}

// load returns what package load is to measure at a point.
func (p plan) load(o Options, addr string, connections int) load.Options {
	l := load.Options{
		Connect: addr, Connections: connections, Pipeline: o.Pipeline,
		Hashes: load.Lengths{Least: o.Hashes, Most: o.Hashes}, HitShare: 1, Entries: o.Entries,
		Duration: p.each, Count: o.count, Warmup: warmupFor(connections), Timeout: o.Timeout,
		Reset: true, Seed: o.Seed,
	}
	if o.count > 0 {
		l.Duration = 0
	}
	if !p.Shared {
		l.Threads = len(p.Client) // all of the half; load would take half of it again
	}
	return l
}

func warmupFor(connections int) time.Duration {
	return min(warmup+time.Duration(connections)*warmupEach, warmupMost)
}
