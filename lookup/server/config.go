package server

import (
	"io/fs"
	"log/slog"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/lookup"
)

// Config configures a Server. Zero fields mean the defaults.
type Config struct {
	// Listeners are the addresses to serve on, with who may do what there. Default: api.DefaultListen.
	Listeners []Listener
	// OtherConnections bounds the connections of listeners that the program serves by itself, such as those of HTTP.
	// The server leaves file descriptors for them.
	OtherConnections int
	// IPCMode is the mode of the files of ipc:// sockets. Default: DefaultIPCMode.
	IPCMode fs.FileMode
	// Loops is the number of event loops. Default: GOMAXPROCS.
	Loops int
	// Limits protect the server from its peers.
	Limits Limits
	// Pools are served besides the server's own pool, to connections that ask for them by name
	// or by a description. Their names differ.
	Pools []ServedPool
	// AcceptPool, if set, returns the service of a pool that a client describes and that is
	// none of the others. Calls may run at the same time.
	AcceptPool func(pool coordinator.Pool) (*lookup.Service, error)
	// MaxPools bounds the described pools. One without connections gives way to a new one,
	// the one that has been so for longest. Default: 64.
	MaxPools int
	// Backend is that of the services: all of them have the same, nil over memory. It need
	// only be set if there is neither a service nor Pools.
	Backend *lookup.SharedBackend
	// Memory, if set, counts what connections hold, in place of an account of Limits.MaxMemory
	// bytes. The backend's RemoteConfig.Memory should be the same.
	Memory *lookup.MemoryAccount
	// AccountBytes bounds the memory of what was asked of one pool: see package tokens. Default: 4 MiB. A negative
	// number means that no account is kept of where the tokens of prompts went.
	AccountBytes int
	// FirstLook and SecondLook are when it is looked for what engines have saved: see tokens.Pool. Tests shorten them.
	FirstLook, SecondLook time.Duration
	// CPU is what handshakes of TLS compute on, which the program's other listeners may share. Default: half of the
	// processors, at least one.
	CPU *cpushare.Share
	// Ready, if set, returns why the program is not ready yet, nil if it is. Server.Ready asks it last.
	Ready func() error
	// Version is reported by pings, and by Stat on connections without a pool. Empty means "devel".
	Version string
	// Logger receives the server's log. Default: none.
	Logger *slog.Logger
}
