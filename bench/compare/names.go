package compare

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

// rivalKind is what is known of a rival before its server is there.
type rivalKind struct {
	client string // the usual one; empty: none
	why    string // there is none
	note   string // what limits the meaning of its figures
	bytes  int64  // that a hash takes, about, in the server and in the requests that this process holds, in all ways
}

var rivalKinds = map[string]rivalKind{
	Floor:           {"", "nobody uses it: it is the least that a prepared request can take", "reads as many bytes and answers 4: no lookup", 0},
	Hitline:         {"lookup/client", "", "raw dialect; lookup/client asks by anchors for 4096 hashes or more", 100},
	HitlineZMTP:     {"pyzmq", "", "asked over ZeroMQ", 150},
	GoNetMap:        {"Go's net", "", "Go's net and a Go map", 120},
	GoZMQMap:        {"pyzmq", "", "a Go map behind ZeroMQ in Go", 270},
	PythonBare:      {"pyzmq", "", "a set of the bare hashes", 300},
	Python:          {"pyzmq", "", "the work of an engine's lookup thread: keys built, looked up in a set", 500},
	RedisSMIsMember: {"go-redis", "", redisSetNote, 250},
	RedisExists:     {"go-redis", "", redisKeysNote, 350},
	ValkeySMIs:      {"go-redis", "", redisSetNote, 250},
	ValkeyExists:    {"go-redis", "", redisKeysNote, 350},
	MooncakeExists:  {"backend/mooncake", "", "all keys absent (miss only); batch existence call, keys made before", 350},
}

const (
	redisSetNote  = "one set; SMISMEMBER of all hashes"
	redisKeysNote = "a key a hash; EXISTS of each, in one pipeline"
)

// UsualClient returns the name of the client that a rival's users have. If there is
// none, it returns why.
func UsualClient(rival string) (client, why string) {
	return rivalKinds[rival].client, rivalKinds[rival].why
}

// waysOf returns the ways in which a rival may be asked.
func waysOf(rival string) []string {
	switch {
	case rivalKinds[rival].client == "":
		return []string{Prepared}
	case rival == Hitline:
		return Ways()
	}
	return []string{Prepared, Usual}
}
