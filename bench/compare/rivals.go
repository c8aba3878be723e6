package compare

import "context"

// Names of the rivals, as the report has them.
const (
	RawSocket       = "raw"
	Hitline         = "hitline"
	HitlineZMTP     = "hitline-zmtp"
	PythonBare      = "python-zmq-bare"
	Python          = "python-zmq"
	RedisSMIsMember = "redis-smismember"
	RedisExists     = "redis-exists"
	ValkeySMIs      = "valkey-smismember"
	ValkeyExists    = "valkey-exists"
)

// rivalKind is what is known of a rival before its server is there.
type rivalKind struct {
	name  string
	note  string // what limits the meaning of its figures
	bytes int64  // that a hash takes, about, in the server and in the requests that this process holds
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
	{(*servers).startRaw, []rivalKind{{RawSocket, "reads as many bytes and answers 4: no lookup", 0}}},
	{(*servers).startHitline, []rivalKind{{Hitline, "raw dialect", 100}, {HitlineZMTP, "asked over ZeroMQ", 50}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, PythonBare, "hashes")
	}, []rivalKind{{PythonBare, "a set of the bare hashes", 200}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, Python, "strings")
	}, []rivalKind{{Python, "the work of an engine's lookup thread: keys built, looked up in a set", 400}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startRedis(ctx, s.o.RedisServer, "redis-server", RedisSMIsMember, RedisExists)
	}, []rivalKind{{RedisSMIsMember, setNote, 200}, {RedisExists, keysNote, 300}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startRedis(ctx, s.o.ValkeyServer, "valkey-server", ValkeySMIs, ValkeyExists)
	}, []rivalKind{{ValkeySMIs, setNote, 200}, {ValkeyExists, keysNote, 300}}},
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
