package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench"
)

// Errors of Run. Wrong options wrap bench.ErrOptions.
var (
	// ErrLost says that a server could not be started or reached, or was lost.
	ErrLost = errors.New("compare: no connection")
	// ErrAnswer says that a server sent what is no answer to a lookup.
	ErrAnswer = errors.New("compare: bad answer")
)

// Names of the rivals, as the report has them.
const (
	Floor           = "floor"
	Hitline         = "hitline"
	HitlineZMTP     = "hitline-zmtp"
	GoNetMap        = "go-net-map"
	GoZMQMap        = "go-zmq-map"
	PythonBare      = "python-zmq-bare"
	Python          = "python-zmq"
	RedisSMIsMember = "redis-smismember"
	RedisExists     = "redis-exists"
	ValkeySMIs      = "valkey-smismember"
	ValkeyExists    = "valkey-exists"
	MooncakeExists  = "mooncake-exists"
)

// Rivals are the names of all rivals, in the order of the report.
func Rivals() []string {
	return []string{
		Floor, Hitline, HitlineZMTP, GoNetMap, GoZMQMap, PythonBare, Python,
		RedisSMIsMember, RedisExists, ValkeySMIs, ValkeyExists, MooncakeExists,
	}
}

// Places where a chain that does not hit whole misses.
const (
	MissFirst  = "first"
	MissMiddle = "middle"
	MissTail   = "tail"
	MissRandom = "random"
)

// Options says what to measure. Everything but Only and the paths of rivals is
// required.
type Options struct {
	Hashes     []int // a request; one after the other
	HashTokens int   // tokens one hash covers
	Entries    int   // hashes stored for each number of hashes; more if MinChains chains need it
	Rounds     int
	Cell       time.Duration // for each rival at each number of hashes, about
	HitShare   float64       // of the chains that are stored whole
	MissAt     string        // where the others miss

	Only []string // rivals to measure; hitline always is; nil for all

	ClientCore, ServerCore int // numbers among the cores this process may run on, from 0

	Hitline     string   // path of the hitline binary
	FloorServer []string // command line that ends in a call of floor.ServeFloor; the request size is appended
	MapServer   []string // command line that ends in a call of ServeMap; the tokens of a hash are appended

	// Paths of the other programs; where one is empty it is looked for on PATH.
	Python         string // with pyzmq
	GoMap          string // bench/rivals/gomap
	RedisServer    string
	ValkeyServer   string
	MooncakeMaster string // not looked for on PATH

	Timeout time.Duration // longest wait for a start, a connection or an answer
	OnNote  func(text string)
	OnStep  func(phase string, done, total int)
}

const (
	hashLen = 32 // bytes, as vLLM's sha256 hashes have

	// MaxHashes is what fits the 64 MiB that a message may have by default.
	MaxHashes = 2_000_000
	// MaxEntries bounds what the chains take of memory in each server.
	MaxEntries = 20_000_000
	// MinChains is the least number of chains that requests rotate over.
	MinChains = 4
)

// Validate returns an error that wraps [bench.ErrOptions] unless the options make
// sense.
func (o Options) Validate() error {
	in := func(n, least, most int) bool { return n >= least && n <= most }
	wrong := func(n int) bool { return !in(n, 1, MaxHashes) }
	unknown := func(name string) bool { return !slices.Contains(Rivals(), name) }
	text := ""
	switch {
	case len(o.Hashes) == 0:
		text = "no number of hashes"
	case slices.ContainsFunc(o.Hashes, wrong):
		text = fmt.Sprintf("%d hashes; 1 to %d fit a request", o.Hashes[slices.IndexFunc(o.Hashes, wrong)], MaxHashes)
	case len(slices.Compact(slices.Sorted(slices.Values(o.Hashes)))) < len(o.Hashes):
		text = fmt.Sprintf("hashes %v: one of them is there twice", o.Hashes)
	case !in(o.HashTokens, 1, 1<<32/MaxHashes):
		text = fmt.Sprintf("a hash of %d tokens; it may cover 1 to %d", o.HashTokens, 1<<32/MaxHashes)
	case !in(o.Entries, 1, MaxEntries):
		text = fmt.Sprintf("%d entries; give 1 to %d", o.Entries, MaxEntries)
	case !in(o.Rounds, 1, 1000):
		text = fmt.Sprintf("%d rounds; give 1 to 1000", o.Rounds)
	case o.Cell <= 0:
		text = fmt.Sprintf("%v for each figure; it must be positive", o.Cell)
	case !(o.HitShare >= 0 && o.HitShare <= 1): // not a number, too
		text = fmt.Sprintf("a share of %v that hits; give 0 to 1", o.HitShare)
	case !slices.Contains([]string{MissFirst, MissMiddle, MissTail, MissRandom}, o.MissAt):
		text = fmt.Sprintf("a miss at %q; give first, middle, tail or random", o.MissAt)
	case slices.ContainsFunc(o.Only, unknown):
		text = fmt.Sprintf("no rival is called %q; there are %s", o.Only[slices.IndexFunc(o.Only, unknown)], strings.Join(Rivals(), ", "))
	case o.ClientCore < 0 || o.ServerCore < 0 || o.ClientCore == o.ServerCore:
		text = fmt.Sprintf("client on core %d, servers on core %d; give two different ones, from 0", o.ClientCore, o.ServerCore)
	case o.Timeout <= 0:
		text = fmt.Sprintf("a timeout of %v; it must be positive", o.Timeout)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", bench.ErrOptions, text)
}

// wants tells whether a rival is to be measured.
func (o Options) wants(name string) bool {
	return len(o.Only) == 0 || name == Hitline || slices.Contains(o.Only, name)
}
