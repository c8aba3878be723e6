package compare

import "context"

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

// rivalKind is what is known of a rival before its server is there.
type rivalKind struct {
	name  string
	note  string // what limits the meaning of its figures
	bytes int64  // that a hash takes, about, in the server and in the requests that this process holds, in all ways
}

// serverKind is a kind of server, and the rivals that are on it.
type serverKind struct {
	start  func(s *servers, ctx context.Context) ([]*rival, error)
	rivals []rivalKind
}

const (
	setNote  = "one set; SMISMEMBER of all hashes"
	keysNote = "a key a hash; EXISTS of each, in one pipeline"
)

// serverKinds are all servers, in the order of the report.
var serverKinds = []serverKind{
	{(*servers).startFloor, []rivalKind{{Floor, "reads as many bytes and answers 4: no lookup; prepared only, as nobody uses it", 0}}},
	{(*servers).startHitline, []rivalKind{
		{Hitline, "raw dialect", 100}, {HitlineZMTP, "asked over ZeroMQ", 150},
	}},
	{(*servers).startMap, []rivalKind{{GoNetMap, "Go's net and a Go map", 120}}},
	{(*servers).startGoMap, []rivalKind{{GoZMQMap, "a Go map behind ZeroMQ in Go", 270}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, PythonBare, "hashes")
	}, []rivalKind{{PythonBare, "a set of the bare hashes", 300}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, Python, "strings")
	}, []rivalKind{{Python, "the work of an engine's lookup thread: keys built, looked up in a set", 500}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startRedis(ctx, s.o.RedisServer, "redis-server", RedisSMIsMember, RedisExists)
	}, []rivalKind{{RedisSMIsMember, setNote, 250}, {RedisExists, keysNote, 350}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startRedis(ctx, s.o.ValkeyServer, "valkey-server", ValkeySMIs, ValkeyExists)
	}, []rivalKind{{ValkeySMIs, setNote, 250}, {ValkeyExists, keysNote, 350}}},
	{(*servers).startMooncake, []rivalKind{{MooncakeExists, "all keys absent (miss only); batch existence call, keys made before", 350}}},
}

// Rivals are the names of all rivals, in the order of the report.
func Rivals() []string {
	var names []string
	for _, server := range serverKinds {
		for _, kind := range server.rivals {
			names = append(names, kind.name)
		}
	}
	return names
}

// Ways in which a rival is asked.
const (
	// Prepared: bytes made before, raw system calls, and no more of the reply read than
	// the hit needs. It shows the server.
	Prepared = "prepared"
	// Usual: the client that the rival's users have, whose work counts.
	Usual = "usual"
)

// Ways are all ways, in the order of the report.
func Ways() []string { return []string{Prepared, Usual} }

// waysOf returns the ways in which a rival may be asked.
func waysOf(rival string) []string {
	switch rival {
	case Floor:
		return []string{Prepared}
	case MooncakeExists:
		return []string{Usual}
	}
	return []string{Prepared, Usual}
}
