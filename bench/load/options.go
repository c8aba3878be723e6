package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/coordinator"
)

// MissAt says where a lookup that misses leaves its chain.
type MissAt string

// The places of a first miss: the first block, the one in the middle, the last, or
// any of them, another one for each chain.
const (
	MissFirst  MissAt = "first"
	MissMiddle MissAt = "middle"
	MissTail   MissAt = "tail"
	MissRandom MissAt = "random"
)

// Bounds of options.
const (
	hashLen = 32 // bytes, as vLLM's sha256 hashes have

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
// one is named; Connect, and Duration or Count, are required.
type Options struct {
	Connect     string       // tcp://host:port, tls://host:port or ipc:///path of the server
	Dialect     wire.Dialect // default Raw
	Connections int          // default 1
	Pipeline    int          // requests under way on a connection; default 1

	// Threads is how many threads serve the connections at most. The default is the number
	// of ClientCores. Without these it is GOMAXPROCS if each connection of a closed loop
	// then has a thread of its own, else half of it, rounded up.
	Threads int

	// ClientCores, by the system's numbers, are those that Run keeps this process to until
	// it returns, so no two such runs may overlap; nil: any. ServerCores are the server's,
	// for the report only; nil: not known. See [Halves] and [ParseCores].
	ClientCores, ServerCores []int

	// Rates, if there are any, make open loops: requests a second over all
	// connections, one step for each. None makes one step of a closed loop.
	Rates []float64

	Hashes   Lengths // of a lookup; default 64
	HitShare float64 // of lookups that hit a whole chain, 0 to 1
	MissAt   MissAt  // of the others; default MissRandom
	Entries  int     // least number of hashes to store beforehand; default 1
	Stores   float64 // share of operations that store a chain, 0 to 1
	Evicts   float64 // share of operations that evict one

	Duration time.Duration // of a step; default: until Count
	Count    int64         // requests of a step; default: until Duration
	Warmup   time.Duration // before each step, not measured
	Timeout  time.Duration // longest wait for a connection or an answer; default 10 s

	// Pool is the server's. Its zero value stands for one full-attention group,
	// of blocks as large as the server says.
	Pool  coordinator.Pool
	Reset bool   // have the server forget everything first
	Seed  uint64 // of the hashes and of all choices; 0 takes a random one, which the report has

	// Anchored, if set, makes the connections of lookups by anchors, one for each of
	// Connections, in place of the run's own. Closed loops only, of lookups only, one
	// under way on a connection.
	Anchored func(ctx context.Context, addr string) (Anchorer, error)

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

// Anchorer is a connection that looks up by anchors.
type Anchorer interface {
	Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error)
	Close() error
}

// Lengths says how many hashes requests have: between Least and Most, evenly
// spread over the logarithm, or those of Each in its proportions.
type Lengths struct {
	Least, Most int
	Each        []int  // if there are any, the others mean nothing
	Name        string // how the report calls it; default: Least-Most
}

// String returns the name.
func (l Lengths) String() string {
	switch {
	case l.Name != "":
		return l.Name
	case len(l.Each) > 0:
		return fmt.Sprintf("%d lengths", len(l.Each))
	case l.Least == l.Most:
		return fmt.Sprint(l.Least)
	}
	return fmt.Sprintf("%d-%d", l.Least, l.Most)
}

// bounds returns the least and the largest length.
func (l Lengths) bounds() (least, most int) {
	if len(l.Each) == 0 {
		return l.Least, l.Most
	}
	least = math.MaxInt
	for _, n := range l.Each {
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// withDefaults fills in what is zero and has a default.
func (o Options) withDefaults() Options {
	if o.Dialect == "" {
		o.Dialect = wire.Raw
	}
	if o.MissAt == "" {
		o.MissAt = MissRandom
	}
	if o.Hashes.Least == 0 && o.Hashes.Most == 0 && len(o.Hashes.Each) == 0 {
		o.Hashes.Least, o.Hashes.Most = 64, 64
	}
	for _, field := range []*int{&o.Connections, &o.Pipeline, &o.Entries} {
		if *field == 0 {
			*field = 1
		}
	}
	if o.Threads == 0 {
		o.Threads = len(o.ClientCores)
	}
	if o.Seed == 0 {
		o.Seed = measure.RandomSeed()
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	return o
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	o = o.withDefaults()
	for _, check := range []func() string{o.wrongShape, o.wrongMix, o.wrongTime, o.wrongAnchored} {
		if text := check(); text != "" {
			return fmt.Errorf("%w: %s", measure.ErrOptions, text)
		}
	}
	return nil
}

func (o Options) wrongShape() string {
	least, most := o.Hashes.bounds()
	in := func(n, least, most int) bool { return n >= least && n <= most }
	switch {
	case o.Dialect != wire.Raw && o.Dialect != wire.ZMTP:
		return fmt.Sprintf("dialect %q; give raw or zmtp", o.Dialect)
	case !in(o.Connections, 1, MaxConnections):
		return fmt.Sprintf("%d connections; give 1 to %d", o.Connections, MaxConnections)
	case !in(o.Pipeline, 1, MaxPipeline):
		return fmt.Sprintf("%d requests under way; give 1 to %d", o.Pipeline, MaxPipeline)
	case !in(o.Threads, 0, MaxConnections):
		return fmt.Sprintf("%d threads; give 1 to %d, or 0 for half of the cores", o.Threads, MaxConnections)
	case !in(least, 1, MaxHashes) || !in(most, least, MaxHashes):
		return fmt.Sprintf("%d to %d hashes; 1 to %d fit a request, the smaller number first", least, most, MaxHashes)
	case !in(o.Entries, 1, MaxEntries):
		return fmt.Sprintf("%d entries; give 1 to %d", o.Entries, MaxEntries)
	}
	return ""
}

func (o Options) wrongMix() string {
	share := func(x float64) bool { return x >= 0 && x <= 1 }
	switch {
	case !share(o.HitShare) || !share(o.Stores) || !share(o.Evicts):
		return fmt.Sprintf("shares of %v hits, %v stores, %v evicts; each is 0 to 1", o.HitShare, o.Stores, o.Evicts)
	case o.Stores+o.Evicts > 0.5:
		// A lookup follows every change, to see whether it took effect.
		return fmt.Sprintf("%v of operations are stores or evicts; half of them at most, as a lookup follows each", o.Stores+o.Evicts)
	case !strings.Contains(" first middle tail random ", " "+string(o.MissAt)+" "):
		return fmt.Sprintf("misses at %q; give first, middle, tail or random", o.MissAt)
	}
	return ""
}

func (o Options) wrongTime() string {
	for _, rate := range o.Rates {
		if !(rate > 0 && rate <= 1e8) { // NaN is none either
			return fmt.Sprintf("a rate of %v requests a second; it must be above 0 and at most 100000000", rate)
		}
	}
	switch {
	case o.Duration < 0 || o.Warmup < 0 || o.Timeout < 0:
		return fmt.Sprintf("a duration of %v, a warm-up of %v, a timeout of %v; none may be negative", o.Duration, o.Warmup, o.Timeout)
	case o.Count < 0:
		return fmt.Sprintf("%d requests; give 0 to measure for a time", o.Count)
	case (o.Duration == 0) == (o.Count == 0):
		return "give either how long to measure or how many requests"
	}
	return ""
}

func (o Options) wrongAnchored() string {
	switch {
	case o.Anchored == nil:
		return ""
	case o.Dialect != wire.Raw:
		return "lookups by anchors go over the raw dialect"
	case o.Pipeline > 1:
		return "lookups by anchors are not pipelined"
	case len(o.Rates) > 0:
		return "lookups by anchors are measured in a closed loop, without a rate"
	case o.Stores+o.Evicts > 0:
		return "lookups by anchors are measured without stores and evicts"
	}
	return ""
}

// mode returns how the report calls the loop.
func (o Options) mode() string {
	if len(o.Rates) > 0 {
		return "open"
	}
	return "closed"
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

// deadlineIn returns a context that ends after the timeout.
func (o Options) deadlineIn(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.Timeout)
}
