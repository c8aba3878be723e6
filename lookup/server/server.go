package server

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/held"
	"github.com/panjf2000/gnet/v2"
)

// Server serves a Service on TCP, TLS and unix sockets. It can be started once. All methods are
// safe for concurrent use.
type Server struct {
	*lifecycle
	*shared

	cfg        *Config
	ownAccount bool               // the memory account is the server's: nobody else changes its bound
	listeners  []Listener         // as configured
	cancel     context.CancelFunc // ends jobs
	events     *eventHandler
	engine     *gnet.Client // event loops without listeners
	acceptor   *acceptor    // of all bound listeners
	addrs      []string     // bound, see Addrs

	conns       openConns
	closePoll   time.Duration  // between looks at connections that are being closed; a test makes it long
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
	listeners, err := checkListeners(cfg.Listeners)
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
	ownAccount := cfg.Memory == nil
	if ownAccount {
		cfg.Memory = lookup.NewMemoryAccount(limits.MaxMemory)
	}
	accounts := newAccounting(&cfg)
	pools.open, pools.close = accounts.openAccount, accounts.Close
	for _, p := range pools.list() {
		p.account = pools.open(p.service)
	}
	s := &Server{
		lifecycle: newLifecycle(), cfg: &cfg, ownAccount: ownAccount, listeners: listeners,
		conns: openConns{all: map[*conn]struct{}{}, emptied: make(chan struct{}, 1)}, closePoll: closePoll,
		shared: &shared{
			backend: cfg.Backend, pools: pools, accounts: accounts, memoryAccount: cfg.Memory, peers: newPeerLog(cfg.Logger),
			admission: held.New(admissionBounds(cfg.Memory, cfg.Backend, limits.MaxConnections)),
			loops:     eventLoops{all: map[gnet.EventLoop]*eventLoop{}}, instance: newInstance(cfg.Version),
		},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.limits.Store(&limits)
	s.events = &eventHandler{server: s}
	return s, nil
}
