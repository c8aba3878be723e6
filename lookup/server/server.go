package server

import (
	"context"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/lookup"
)

// Config configures a Server. Zero fields mean the defaults.
type Config struct {
	// Listeners are the addresses to serve on, with who may do what there. Default: api.DefaultListen.
	Listeners []Listener
	// OtherConnections bounds the connections of listeners that the program serves by itself, such as those of HTTP. The
	// server leaves file descriptors for them.
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
	// AccountBytes bounds the memory of what was asked of one pool: see package tokens. Default: 4 MiB. A negative number
	// means that no account is kept of where the tokens of prompts went.
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

// Server serves a Service on TCP, TLS and unix sockets. It can be started once. All methods are
// safe for concurrent use.
type Server struct {
	*lifecycle
	*shared

	cfg       *Config
	ownMemory bool               // nobody else changes the bound of memory
	listeners []Listener         // as configured
	cancel    context.CancelFunc // ends jobs
	engine    *gnet.Client       // event loops without listeners
	acceptor  *acceptor          // of all bound listeners
	addrs     []string           // bound, see Addrs

	conns       openConns
	halfClosed  sync.WaitGroup // the goroutines of half-closed connections
	sweeps      atomic.Int64   // calls of closeOverdue, see watch
	evictionLog loglimit.Limit // of logEvictions
}

// New returns a server that is not started. service may be nil if there are others in cfg, or
// if it accepts pools: connections then name or describe theirs. It returns api.ErrConfig if the
// configuration is not valid.
func New(service *lookup.Service, cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	pools, err := newPools(service, &cfg)
	if err != nil {
		return nil, err
	}
	listeners, err := listenersOf(&cfg)
	if err != nil {
		return nil, err
	}
	if cfg.IPCMode == 0 {
		cfg.IPCMode = DefaultIPCMode
	}
	if cfg.Loops <= 0 {
		cfg.Loops = runtime.GOMAXPROCS(0)
	}
	if cfg.Version == "" {
		cfg.Version = "devel"
	}
	if err := cfg.Limits.check(); err != nil {
		return nil, err
	}
	limits := cfg.Limits.inEffect(&cfg, listeners)
	ownMemory := cfg.Memory == nil
	if ownMemory {
		cfg.Memory = lookup.NewMemoryAccount(limits.MaxMemory)
	}
	accounts := newAccounting(&cfg)
	pools.open, pools.close = accounts.openAccount, accounts.Close
	for _, p := range pools.list() {
		p.account = pools.open(p.service)
	}
	s := &Server{
		lifecycle: newLifecycle(), cfg: &cfg, ownMemory: ownMemory, listeners: listeners,
		conns: openConns{all: map[*conn]struct{}{}},
		shared: &shared{
			backend: cfg.Backend, pools: pools, accounts: accounts, memory: cfg.Memory, peers: newPeerLog(cfg.Logger),
			admission: admission.New(admissionBounds(cfg.Memory, cfg.Backend, limits.MaxConnections)),
			loops:     eventLoops{all: map[gnet.EventLoop]*eventLoop{}}, instance: newInstance(cfg.Version),
		},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.limits.Store(&limits)
	return s, nil
}
