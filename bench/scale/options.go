package scale

import (
	"fmt"
	"time"

	"github.com/hitline/hitline/bench"
	"github.com/hitline/hitline/bench/load"
)

// Options says what to measure. Hitline, Hashes, Pipeline, Entries and Timeout are
// required.
type Options struct {
	Hitline string // path of the program

	Loops       []int // of the servers; nil: 1, 2, 4, … and all cores of the server
	Connections []int // nil: 1, 2, 4, … up to MaxConnections or what the limit of open files allows

	Hashes   int           // a lookup, of which all hit
	Pipeline int           // lookups under way on a connection
	Entries  int           // least number of hashes in the index
	Duration time.Duration // of a point; 0: so that all take about 40 s
	Timeout  time.Duration // longest wait for a start, a connection or an answer

	OnNote func(text string) // is told what limits the meaning of the figures; may be nil
	OnStep func(phase string, done, total int)

	leastCores int   // leastCores, but for tests
	count      int64 // of requests of a point in place of a duration, for tests
}

const (
	// MaxConnections is how many connections are tried by default.
	MaxConnections = 4096

	blockTokens = 16
	// warmup is the least that goes before a point; thousands of connections take
	// longer until all are served alike.
	warmup     = 100 * time.Millisecond
	warmupEach = 100 * time.Microsecond // a connection
	warmupMost = time.Second
	// overhead is about what a point takes beside its warm-up and duration.
	overhead = 150 * time.Millisecond
	// budget is how long all points may take by default.
	budget = 40 * time.Second
)

// Validate returns an error that wraps [bench.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	for _, list := range []struct {
		what    string
		numbers []int
		most    int
	}{{"loops", o.Loops, 1024}, {"connections", o.Connections, load.MaxConnections}} {
		for _, n := range list.numbers {
			if n < 1 || n > list.most {
				return fmt.Errorf("%w: %d %s; give 1 to %d", bench.ErrOptions, n, list.what, list.most)
			}
		}
	}
	if o.Duration < 0 {
		return fmt.Errorf("%w: a duration of %v; it may not be negative", bench.ErrOptions, o.Duration)
	}
	if o.Timeout <= 0 {
		return fmt.Errorf("%w: a timeout of %v; it must be positive", bench.ErrOptions, o.Timeout)
	}
	return o.load("", 1, time.Second).Validate()
}

// load returns what package load is to measure at a point.
func (o Options) load(addr string, connections int, d time.Duration) load.Options {
	if o.count > 0 {
		d = 0
	}
	return load.Options{
		Connect: addr, Connections: connections, Pipeline: o.Pipeline,
		Hashes: load.Lengths{Least: o.Hashes, Most: o.Hashes}, HitShare: 1, Entries: o.Entries,
		Duration: d, Count: o.count, Warmup: warmupFor(connections), Timeout: o.Timeout,
	}
}

func warmupFor(connections int) time.Duration {
	return min(warmup+time.Duration(connections)*warmupEach, warmupMost)
}
