package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
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

// Ways in which a rival is asked.
const (
	// Prepared: bytes made before, raw system calls, and no more of the reply read than
	// the hit needs. It shows the server.
	Prepared = "prepared"
	// Usual: the client that the rival's users have, whose work counts.
	Usual = "usual"
)

// Ways are both ways, in the order of the report.
func Ways() []string { return []string{Prepared, Usual} }

// usualClients names the usual client of each rival that has one.
var usualClients = map[string]string{
	Hitline: "lookup/client", HitlineZMTP: "pyzmq", GoNetMap: "Go's net", GoZMQMap: "pyzmq", PythonBare: "pyzmq", Python: "pyzmq",
	RedisSMIsMember: "go-redis", RedisExists: "go-redis", ValkeySMIs: "go-redis", ValkeyExists: "go-redis",
	MooncakeExists: "backend/mooncake",
}

// preparedOnly says why a rival has no usual client.
var preparedOnly = map[string]string{Floor: "nobody uses it: it is the least that a prepared request can take"}

// UsualClient returns the name of the client that a rival's users have. If there is
// none, it returns why.
func UsualClient(rival string) (client, why string) { return usualClients[rival], preparedOnly[rival] }

// Blocks at which a chain that does not hit whole misses.
const (
	MissFirst  = "first"
	MissMiddle = "middle"
	MissTail   = "tail"
	MissRandom = "random"
)

// Options says what to measure. Everything but Entries, Rotate, Only, Ways, ServerCores
// and the paths of rivals is required.
type Options struct {
	Hashes       []int // a request; one after the other
	HashTokens   int   // tokens one hash covers
	Entries      int   // least number of hashes stored for each number of hashes
	Rotate       int64 // bytes that the requests of each number of hashes exceed together, so that they exceed caches
	Rounds       int
	TimePerRival time.Duration // in each way at each number of hashes, about
	HitShare     float64       // of the chains that hit whole
	MissAt       string        // where the others miss
	Seed         uint64        // the same one sends the same requests to every rival, in every run; 0 takes a random one

	Only []string // rivals to measure; hitline always is; nil for all
	Ways []string // in which they are asked; nil for both

	// Cores by the system's numbers. A negative ClientCore is the first that this
	// process may run on. ServerCores is nil for all but the client's, and but those
	// that are threads of the same core.
	ClientCore  int
	ServerCores []int

	Hitline     string   // path of the hitline binary
	FloorServer []string // command line that ends in a call of floor.ServeFloor; the request size is appended
	MapServer   []string // command line that ends in a call of ServeMap; the tokens of a hash are appended

	// Paths of the other programs; where one is empty it is looked for on PATH.
	Python         string // with pyzmq: of its servers and of the client
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
	// MaxEntries bounds the memory of the chains in each server.
	MaxEntries = 20_000_000
	// MaxRotate bounds the memory of the requests.
	MaxRotate = 4 << 30
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make
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
	case !in(o.Entries, 0, MaxEntries):
		text = fmt.Sprintf("%d entries; give 1 to %d, or 0 for what the rotation needs", o.Entries, MaxEntries)
	case o.Rotate < 0 || o.Rotate > MaxRotate:
		text = fmt.Sprintf("a rotation of %d MiB; give 0 to %d", o.Rotate>>20, MaxRotate>>20)
	case !in(o.Rounds, 1, 1000):
		text = fmt.Sprintf("%d rounds; give 1 to 1000", o.Rounds)
	case o.TimePerRival <= 0:
		text = fmt.Sprintf("%v for each rival; it must be positive", o.TimePerRival)
	case !(o.HitShare >= 0 && o.HitShare <= 1): // not a number, too
		text = fmt.Sprintf("a share of %v that hits; give 0 to 1", o.HitShare)
	case !slices.Contains([]string{MissFirst, MissMiddle, MissTail, MissRandom}, o.MissAt):
		text = fmt.Sprintf("a miss at %q; give first, middle, tail or random", o.MissAt)
	case slices.ContainsFunc(o.Only, unknown):
		text = fmt.Sprintf("no rival is called %q; there are %s", o.Only[slices.IndexFunc(o.Only, unknown)], strings.Join(Rivals(), ", "))
	case slices.ContainsFunc(o.Ways, func(way string) bool { return !slices.Contains(Ways(), way) }):
		text = fmt.Sprintf("ways %v; there are prepared and usual", o.Ways)
	case o.Timeout <= 0:
		text = fmt.Sprintf("a timeout of %v; it must be positive", o.Timeout)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", measure.ErrOptions, text)
}

// wants tells whether a rival is to be measured in one of some ways.
func (o Options) wants(name string, ways ...string) bool {
	named := len(o.Only) == 0 || name == Hitline || slices.Contains(o.Only, name)
	return named && slices.ContainsFunc(ways, func(way string) bool { return len(o.Ways) == 0 || slices.Contains(o.Ways, way) })
}
