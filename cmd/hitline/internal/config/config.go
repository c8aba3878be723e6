package config

import (
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/tokens"
)

// Config is everything that hitline serve can be told. The yaml tags are the
// names in the file, and of the environment variables.
type Config struct {
	Listen  []Listener       `yaml:"listen"`
	IPCMode Mode             `yaml:"ipc_mode"` // permissions of the files of ipc:// sockets
	Loops   int              `yaml:"loops"`    // event loops; 0: GOMAXPROCS
	Pool    coordinator.Pool `yaml:"pool"`
	// Pools are further pools by name, AcceptPools whether clients may describe others (nil:
	// if none is configured, over Redis and Mooncake), and MaxPools how many.
	Pools        map[string]coordinator.Pool `yaml:"pools,omitempty"`
	AcceptPools  *bool                       `yaml:"accept_pools,omitempty"`
	MaxPools     int                         `yaml:"max_pools"`
	Backend      Backend                     `yaml:"backend"`
	Router       Router                      `yaml:"router"`
	Limits       Limits                      `yaml:"limits"`
	DrainDelay   Duration                    `yaml:"drain_delay"`   // from the signal to stop to its first effect on clients
	DrainTimeout Duration                    `yaml:"drain_timeout"` // for requests in flight when stopping
	Metrics      string                      `yaml:"metrics"`       // host:port of the page, /metrics, /status, /healthz and /readyz; "": not served
	Pprof        bool                        `yaml:"pprof"`         // whether /debug/pprof is served there
	// HTTPHosts are the names by which clients reach Metrics and Router.Listen, see httpguard.Guard.
	HTTPHosts []string `yaml:"http_hosts"`
	Log       Log      `yaml:"log"`

	origins origins
	written coordinator.Pool // Pool before its defaults are filled in
}

// Limits bound what one client can cost.
type Limits struct {
	MaxMessage       Size     `yaml:"max_message"` // bytes of one message
	MaxHashes        int      `yaml:"max_hashes"`  // hashes of one lookup
	MaxConnections   int      `yaml:"max_connections"`
	MaxInFlight      int      `yaml:"max_in_flight"` // requests of one connection
	MaxMemory        Size     `yaml:"max_memory"`    // bytes of unread replies and unfinished requests; 0: by the machine
	MaxAccount       Size     `yaml:"max_account"`   // bytes of the account of a pool's tokens; 0: none is kept
	WriteTimeout     Duration `yaml:"write_timeout"` // in which a client takes none of its replies
	HandshakeTimeout Duration `yaml:"handshake_timeout"`
	MessageTimeout   Duration `yaml:"message_timeout"` // a message begun and not finished
	IdleTimeout      Duration `yaml:"idle_timeout"`    // 0: off
}

// Log says what is logged on standard error, and how.
type Log struct {
	Level  Level  `yaml:"level"`
	Format Format `yaml:"format"`
}

// Default returns what is in effect when nothing is configured. The pool's
// defaults are the coordinator's, which Load fills in.
func Default() Config {
	return Config{
		Listen:  Listeners(api.DefaultListen),
		IPCMode: Mode(server.DefaultIPCMode),
		Backend: Backend{
			Memory:   Memory{MaxBytes: 1 << 30},
			Redis:    Redis{PoolSize: 40, Timeout: Duration(100 * time.Millisecond)},
			Mooncake: Mooncake{Admin: []string{}, Tenant: "default", Conns: 8, Timeout: Duration(100 * time.Millisecond), Renew: "auto", Remember: RememberAuto},
			chosen:   "memory",
		},
		Router: defaultRouter(),
		Limits: Limits{
			MaxMessage:       64 << 20,
			MaxHashes:        2_000_000,
			MaxConnections:   4096,
			MaxInFlight:      1024,
			MaxAccount:       tokens.DefaultMaxBytes,
			WriteTimeout:     Duration(30 * time.Second),
			HandshakeTimeout: Duration(10 * time.Second),
			MessageTimeout:   Duration(60 * time.Second),
		},
		HTTPHosts:    []string{},
		MaxPools:     server.DefaultMaxPools,
		DrainTimeout: Duration(10 * time.Second),
		Log:          Log{Level: "info", Format: "text"},
	}
}
