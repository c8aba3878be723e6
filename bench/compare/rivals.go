//go:build linux

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
)

// rivalKind is what is known of a rival before its server is there.
type rivalKind struct {
	name string
	note string // what limits the meaning of its figures
}

// serverKind is a kind of server, and the rivals that are on it.
type serverKind struct {
	start  func(s *servers, ctx context.Context) ([]*rival, error) // returns the rivals in their order
	rivals []rivalKind
}

// serverKinds are all servers, in the order of the report.
var serverKinds = []serverKind{
	{(*servers).startRaw, []rivalKind{{RawSocket, "reads as many bytes and answers 4: no lookup"}}},
	{(*servers).startHitline, []rivalKind{{Hitline, "raw dialect"}, {HitlineZMTP, "asked over ZeroMQ"}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, "hashes")
	}, []rivalKind{{PythonBare, "a set of the bare hashes"}}},
	{func(s *servers, ctx context.Context) ([]*rival, error) {
		return s.startPython(ctx, "strings")
	}, []rivalKind{{Python, "the work of an engine's lookup thread: keys built, looked up in a set"}}},
	{(*servers).startRedis, []rivalKind{
		{RedisSMIsMember, "one set; SMISMEMBER of all hashes"},
		{RedisExists, "a key a hash; EXISTS of each, in one pipeline"},
	}},
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
