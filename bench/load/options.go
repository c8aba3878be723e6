//go:build linux

package load

import (
	"cmp"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
)

// Bounds of options.
const (
	hashLen = workload.HashLen

	// MaxHashes is what fits the 64 MiB that a message may have by default.
	MaxHashes = 2_000_000
	// MaxPipeline is how many requests a connection may have under way.
	MaxPipeline = 1024
	// MaxEntries bounds what the chains take of memory, 32 bytes an entry.
	MaxEntries = 100_000_000
	// MaxConnections bounds the connections of a run.
	MaxConnections = 60_000
)

// Options says what to measure. Duration or Requests is required, and all else that has no comment on
// its zero value.
type Options struct {
	Connect     string // tcp://host:port or ipc:///path of the server
	Connections int
	Pipeline    int // requests under way on a connection

	// Placement has the cores that Run keeps this process to until it returns, so no two such runs
	// may overlap, and those of the server, for the report.
	Placement process.Placement

	// Rates, if there are any, make open loops: requests a second over all
	// connections, one step for each. None makes one step of a closed loop.
	Rates []float64

	Hashes   int     // of a lookup
	HitShare float64 // of lookups that hit a whole chain, 0 to 1; the others miss at a random block
	Entries  int     // least number of hashes to store beforehand

	Duration time.Duration // of a step; 0: until Requests
	Requests int64         // of a step; 0: until Duration
	Warmup   time.Duration // before each step, not measured
	Timeout  time.Duration // longest wait for a connection or an answer

	Seed uint64 // of the hashes and of all choices; 0 takes a random one, which the report has

	// Token, if set, returns the token to send on each connection, "" for none. It is a function so that
	// no printed options have the token.
	Token func() string

	// OnProblem is told of each wrong or refused answer. Calls do not overlap.
	OnProblem func(*Problem)
	// OnStep is told how many steps of a phase are done: "connect", of the connections; "store", of the
	// chains; "measure", of the rates.
	OnStep func(phase string, done, total int)
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	err := cmp.Or(
		measure.CheckRange("connections", o.Connections, 1, MaxConnections),
		measure.CheckRange("requests under way", o.Pipeline, 1, MaxPipeline),
		measure.CheckRange("hashes", o.Hashes, 1, MaxHashes),
		measure.CheckRange("entries", o.Entries, 1, MaxEntries),
		measure.CheckShare("of lookups that hit", o.HitShare),
		measure.CheckPositive("a timeout", o.Timeout),
	)
	for _, rate := range o.Rates {
		if !(rate > 0 && rate <= 1e8) { // NaN is none either
			err = cmp.Or(err, measure.BadOptions("a rate of %v requests a second; it must be above 0 and at most 100000000", rate))
		}
	}
	switch {
	case err != nil:
		return err
	case o.Duration < 0 || o.Warmup < 0 || o.Requests < 0:
		return measure.BadOptions("a duration of %v, a warm-up of %v, %d requests; none may be negative", o.Duration, o.Warmup, o.Requests)
	case (o.Duration == 0) == (o.Requests == 0):
		return measure.BadOptions("give either how long to measure or how many requests, above 0")
	}
	return nil
}

// server says how to reach the server.
func (o Options) server() wire.Server {
	return wire.Server{Address: o.Connect, Dialect: wire.Raw, Timeout: o.Timeout, Token: o.Token}
}
