//go:build linux

package compare

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// Options says what to measure. The zero value of what has no comment on what it requires is
// good.
type Options struct {
	Hashes       []int         // a request; one after the other; required
	Entries      int           // least number of hashes stored for each number of hashes
	Rotate       int64         // bytes that the requests of each number of hashes exceed together; an index holds as many
	Rounds       int           // required
	TimePerRival time.Duration // at each number of hashes, about; required
	Pipeline     int           // requests under way in further rounds; 0: no such rounds
	HitShare     float64       // of the chains that hit whole
	Seed         uint64        // the same one sends the same requests to every rival, in every run; 0 takes a random one

	Only []string // rivals to measure; hitline always is; nil for all

	Hitline   string   // path of the hitline binary; required
	RawServer []string // command line that ends in a call of ServeRaw; the request size is appended

	Python string // path of one with pyzmq; see [process.FindProgram]

	requests int // of each rival in a round, of tests

	Timeout time.Duration     // longest wait for a start, a connection or an answer; required
	OnNote  func(text string) // is told what limits the meaning of the figures; required
	OnStep  func(phase string, done, total int)
}

const (
	hashLen   = workload.HashLen
	blockSize = 16 // tokens that one hash covers

	// MaxHashes is what fits the 64 MiB that a message may have by default.
	MaxHashes = 2_000_000
	// MaxEntries bounds the memory of the chains in each server.
	MaxEntries = 100_000_000
	// MaxRotate bounds the memory of the requests.
	MaxRotate = 4 << 30
	// MaxPipeline bounds the replies under way.
	MaxPipeline = 1024
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	err := cmp.Or(
		measure.CheckList("hashes", o.Hashes, 1, MaxHashes),
		measure.CheckRange("entries", o.Entries, 0, MaxEntries),
		measure.CheckRange("MiB of requests", o.Rotate>>20, 0, MaxRotate>>20),
		measure.CheckRange("rounds", o.Rounds, 1, 1000),
		measure.CheckPositive("a duration", o.TimePerRival),
		measure.CheckRange("requests under way", o.Pipeline, 0, MaxPipeline),
		measure.CheckShare("of chains that hit", o.HitShare),
		measure.CheckPositive("a timeout", o.Timeout),
	)
	for _, name := range o.Only {
		err = cmp.Or(err, measure.CheckOneOf("a rival", name, Rivals()...))
	}
	return err
}

// wants reports whether a rival is to be measured.
func (o Options) wants(name string) bool {
	return len(o.Only) == 0 || name == Hitline || slices.Contains(o.Only, name)
}
