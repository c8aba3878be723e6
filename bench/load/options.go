package load

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"
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

// Options says what to measure. The zero value of a field means its default, where
// one is named; Connect, and Duration or Requests, are required.
type Options struct {
	Connect     string       // tcp://host:port, tls://host:port or ipc:///path of the server
	Dialect     wire.Dialect // default Raw
	Connections int          // default 1
	Pipeline    int          // requests under way on a connection; default 1

	// ClientCores, by the system's numbers, are those that Run keeps this process to until
	// it returns, so no two such runs may overlap; nil: any. ServerCores are the server's,
	// for the report only; nil: not known. See [process.Place].
	ClientCores, ServerCores []int

	// Rates, if there are any, make open loops: requests a second over all
	// connections, one step for each. None makes one step of a closed loop.
	Rates []float64

	Hashes   Lengths         // of a lookup; default 64
	HitShare float64         // of lookups that hit a whole chain, 0 to 1
	MissAt   workload.MissAt // of the others; default MissRandom
	Entries  int             // least number of hashes to store beforehand; default 1
	Stores   float64         // share of operations that store a chain, 0 to 1
	Evicts   float64         // share of operations that evict one

	Duration time.Duration // of a step; default: until Requests
	Requests int64         // of a step; default: until Duration
	Warmup   time.Duration // before each step, not measured
	Timeout  time.Duration // longest wait for a connection or an answer; default 10 s

	Reset bool   // have the server forget everything first
	Seed  uint64 // of the hashes and of all choices; 0 takes a random one, which the report has

	// Token, if set, returns the token to send on each connection, "" for none: in an auth
	// request, or by the PLAIN mechanism of ZMTP. It is a function so that no printed options
	// have the token.
	Token func() string
	// TLS is the configuration for a tls:// address; nil: the roots of the system. Goroutines
	// then carry all bytes, which takes time that counts as the server's.
	TLS *tls.Config

	// OnProblem, if set, is told of each wrong or refused answer (a *[Problem]).
	// Calls do not overlap.
	OnProblem func(*Problem)
	// OnSample, if set, is told of each window that was measured, about once a
	// second. Calls do not overlap.
	OnSample func(Sample)
	// OnPhase, if set, is told of what comes before the measuring, as it begins:
	// "connect", of so many connections, and "store", of so many requests.
	OnPhase func(phase string, total int)

	// dial replaces net.Dialer in tests.
	dial wire.DialFunc
}

// Lengths says how many hashes requests have: between Least and Most, evenly
// spread over the logarithm.
type Lengths struct{ Least, Most int }

// String returns one number, or two and a hyphen.
func (l Lengths) String() string {
	if l.Least == l.Most {
		return fmt.Sprint(l.Least)
	}
	return fmt.Sprintf("%d-%d", l.Least, l.Most)
}

// LatencyName says what latencies are: of a closed loop round trips; of an open one from when a
// lookup fell due, with what it waited because others stalled.
func (o Options) LatencyName() string { return latencyName(len(o.Rates) > 0) }

func latencyName(open bool) string {
	if open {
		return "with stalls"
	}
	return "round trip"
}

// withDefaults fills in what is zero and has a default.
func (o Options) withDefaults() Options {
	o.Dialect = cmp.Or(o.Dialect, wire.Raw)
	o.MissAt = cmp.Or(o.MissAt, workload.MissRandom)
	o.Connections, o.Pipeline, o.Entries = cmp.Or(o.Connections, 1), cmp.Or(o.Pipeline, 1), cmp.Or(o.Entries, 1)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Seed = cmp.Or(o.Seed, measure.RandomSeed())
	if o.Hashes.Least == 0 && o.Hashes.Most == 0 {
		o.Hashes.Least, o.Hashes.Most = 64, 64
	}
	return o
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	o = o.withDefaults()
	return cmp.Or(
		measure.CheckOneOf("a dialect", o.Dialect, wire.Raw, wire.ZMTP),
		measure.CheckRange("connections", o.Connections, 1, MaxConnections),
		measure.CheckRange("requests under way", o.Pipeline, 1, MaxPipeline),
		measure.CheckRange("hashes", o.Hashes.Least, 1, MaxHashes),
		measure.CheckRange("hashes at most", o.Hashes.Most, o.Hashes.Least, MaxHashes),
		measure.CheckRange("entries", o.Entries, 1, MaxEntries),
		measure.CheckShare("of lookups that hit", o.HitShare),
		measure.CheckShare("of operations that store", o.Stores),
		measure.CheckShare("of operations that evict", o.Evicts),
		o.MissAt.Check(), o.checkRates(), o.checkTogether(),
	)
}

func (o Options) checkRates() error {
	for _, rate := range o.Rates {
		if !(rate > 0 && rate <= 1e8) { // NaN is none either
			return measure.BadOptions("a rate of %v requests a second; it must be above 0 and at most 100000000", rate)
		}
	}
	return nil
}

// checkTogether checks what depends on several options.
func (o Options) checkTogether() error {
	changes := o.Stores + o.Evicts
	switch {
	case o.Duration < 0 || o.Warmup < 0 || o.Timeout < 0:
		return measure.BadOptions("a duration of %v, a warm-up of %v, a timeout of %v; none may be negative", o.Duration, o.Warmup, o.Timeout)
	case o.Requests < 0:
		return measure.BadOptions("%d requests; give 0 to measure for a time", o.Requests)
	case (o.Duration == 0) == (o.Requests == 0):
		return measure.BadOptions("give either how long to measure or how many requests")
	case changes > 0.5: // a lookup follows every change, to see whether it took effect
		return measure.BadOptions("%v of operations are stores or evicts; half of them at most, as a lookup follows each", changes)
	}
	return nil
}

// window is how long a sample is: a tenth of what is measured, and a second at
// most.
func (o Options) window() time.Duration {
	if o.Duration == 0 {
		return time.Second
	}
	return min(max(o.Duration/10, 50*time.Millisecond), time.Second)
}

// server says how to reach the server.
func (o Options) server() wire.Server {
	return wire.Server{Address: o.Connect, Dialect: o.Dialect, Pipelined: o.Pipeline > 1, Timeout: o.Timeout, Dial: o.dial, Token: o.Token}
}
