package floor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// Storer is the connection that fills the index.
type Storer interface {
	Store(ctx context.Context, keys []byte, hashLen int) error
	Close() error
}

// Anchorer is the connection that looks up by anchors.
type Anchorer interface {
	Storer
	// StoreChain is Store for a whole chain, from its first hash on.
	StoreChain(ctx context.Context, keys []byte, hashLen int) error
	Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error)
}

// Options says what to measure. Everything but Connect, Pipeline, Requests and Seed is
// required.
type Options struct {
	Hashes     int // a request
	HashTokens int // tokens one hash covers
	Entries    int // least number of hashes in the index
	Rounds     int
	Requests   int    // a round and server; 0 chooses by their size
	Pipeline   int    // requests under way in the pipelined rounds; 0 for none
	MaxCache   int64  // bytes to take the last-level cache for at most
	Seed       uint64 // of the hashes, of where they miss, and of their order; 0 takes a random one

	ClientCore, ServerCore int // numbers among the cores this process may run on, from 0

	FloorServer []string // command line that ends in a call of ServeFloor; the request size is appended
	Hitline     string   // path of the hitline binary
	Connect     string   // tcp://host:port or ipc:///path of a server to measure in place of starting one

	// Anchored has hitline asked by anchors, over the connection that Dial makes, an
	// Anchorer; half of the chains are cut then, from a random block on.
	Anchored bool

	// Token, if set, returns the token to send to the server of Connect, "" for none. It is a
	// function so that no printed options have the token.
	Token   func() string
	Timeout time.Duration // longest wait for a connection, a start or an answer
	Dial    func(ctx context.Context, addr string) (Storer, error)
	OnNote  func(text string) // is told what limits the meaning of the figures
	OnStep  func(phase string, done, total int)
}

const (
	hashLen = 32 // bytes, as vLLM's sha256 hashes have

	// MaxHashes is what fits the 64 MiB that a message may have by default.
	MaxHashes = 2_000_000
	// MaxPipeline is how many buffers one writev takes.
	MaxPipeline = 1024
	// MaxEntries bounds what the requests take of memory, 32 bytes an entry.
	MaxEntries = 100_000_000
	// MinChains is the least number of chains that requests rotate over; a multiple
	// of ten, of which one is cut.
	MinChains = workload.MinChains
	// maxTimes bounds the round trips of all rounds, whose times are kept: 8 bytes each.
	maxTimes = 50_000_000
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	in := func(n, least, most int) bool { return n >= least && n <= most }
	text := ""
	switch {
	case !in(o.Hashes, 1, MaxHashes):
		text = fmt.Sprintf("%d hashes; 1 to %d fit a request", o.Hashes, MaxHashes)
	case !in(o.HashTokens, 1, 1<<32/MaxHashes):
		text = fmt.Sprintf("a hash of %d tokens; it may cover 1 to %d", o.HashTokens, 1<<32/MaxHashes)
	case !in(o.Entries, 1, MaxEntries):
		text = fmt.Sprintf("%d entries; give 1 to %d", o.Entries, MaxEntries)
	case !in(o.Rounds, 1, 1000):
		text = fmt.Sprintf("%d rounds; give 1 to 1000", o.Rounds)
	case !in(o.Requests, 0, 10_000_000):
		text = fmt.Sprintf("%d requests a round; give 1 to 10000000, or 0 to choose by their size", o.Requests)
	case o.Rounds*o.requests() > maxTimes:
		text = fmt.Sprintf("%d rounds of %d requests; give at most %d requests in all", o.Rounds, o.requests(), maxTimes)
	case !in(o.Pipeline, 0, MaxPipeline):
		text = fmt.Sprintf("%d requests under way; give 1 to %d, or 0 for none", o.Pipeline, MaxPipeline)
	case o.Anchored && o.Pipeline > 0:
		text = "lookups by anchors are not pipelined"
	case o.MaxCache < 1:
		text = fmt.Sprintf("a cache of %d bytes; it must have some", o.MaxCache)
	case o.ClientCore < 0 || o.ServerCore < 0 || o.ClientCore == o.ServerCore:
		text = fmt.Sprintf("client on core %d, servers on core %d; give two different ones, from 0", o.ClientCore, o.ServerCore)
	case strings.HasPrefix(o.Connect, "tls://"):
		text = "TLS is not measured beside a raw socket; give tcp://host:port or ipc:///path"
	case o.Timeout <= 0:
		text = fmt.Sprintf("a timeout of %v; it must be positive", o.Timeout)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", measure.ErrOptions, text)
}

// requests returns the number of requests a round and server: by default a GiB of
// them, within bounds that keep small ones short and large ones many.
func (o Options) requests() int {
	if o.Requests > 0 {
		return o.Requests
	}
	return min(max(1<<30/(o.Hashes*hashLen), 200), 20_000)
}
