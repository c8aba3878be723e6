package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// Config configures a Server. Zero fields mean the defaults.
type Config struct {
	// Listen holds the addresses to serve on: tcp://host:port, where port 0 takes a
	// free one, ipc:///path or ipc://@name. Default: api.DefaultListen.
	Listen []string
	// IPCMode are the permissions of the files of ipc:// sockets; 0 means
	// DefaultIPCMode.
	IPCMode fs.FileMode
	// Loops is the number of event loops; 0 means GOMAXPROCS.
	Loops int
	// Limits protect the server from its peers.
	Limits Limits
	// Logger receives the server's log; nil discards it.
	Logger *slog.Logger
}

// Server serves a Service on TCP and unix sockets. It can be started once. Shutdown may
// be called at any time, and again.
type Server struct {
	gnet.BuiltinEventEngine
	lifecycle

	service  *lookup.Service
	remote   *lookup.Remote // nil over the memory index
	cfg      Config
	engine   *gnet.Client // event loops without listeners
	acceptor *acceptor    // of all listeners
	addrs    []string

	workers *workerPools // nil over the memory index
	peers   *peerLog

	mu       sync.Mutex
	sessions map[*session]gnet.Conn
	metrics  map[gnet.EventLoop]*loopMetrics
	noLoop   loopMetrics // of sessions without an event loop

	anchorsTurnLimit time.Duration // shorter in tests

	sweeps atomic.Int64 // calls of OnTick, see watch

	connections, failed, dropped, ignored, copied, inFlight atomic.Int64
	anchored, undetermined, fallbacks                       atomic.Int64 // requests by anchors
	acceptErrors                                            atomic.Int64
	closed                                                  closeCounters
}

// readBuffer is the size in bytes of a loop's read buffer, and so the most that
// a connection is served before it is another one's turn. 64 KiB is a lookup of
// 2,048 hashes; it takes well under a millisecond.
const readBuffer = 64 << 10

// New prepares a server. It opens nothing yet.
func New(service *lookup.Service, cfg Config) (*Server, error) {
	if len(cfg.Listen) == 0 {
		cfg.Listen = []string{api.DefaultListen}
	}
	for _, addr := range cfg.Listen {
		if _, _, err := api.SplitAddress(addr); err != nil {
			return nil, fmt.Errorf("%w: listen: %w", ErrConfig, err)
		}
	}
	if cfg.IPCMode == 0 {
		cfg.IPCMode = DefaultIPCMode
	}
	if cfg.Loops <= 0 {
		cfg.Loops = runtime.GOMAXPROCS(0)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if files, err := openFileLimit(); err != nil {
		cfg.Logger.Warn("cannot tell the limit of open files; connections are not capped by it", "error", err)
	} else if most := capConnections(cfg.Limits.MaxConnections, files); most < cfg.Limits.MaxConnections {
		cfg.Logger.Warn("max_connections lowered to what the limit of open files allows; raise it (ulimit -n)",
			"max_connections", most, "configured", cfg.Limits.MaxConnections, "open_files", files)
		cfg.Limits.MaxConnections = most
	}
	return &Server{
		service: service, remote: service.Remote(), cfg: cfg, lifecycle: newLifecycle(),
		sessions: map[*session]gnet.Conn{}, metrics: map[gnet.EventLoop]*loopMetrics{},
		peers: newPeerLog(cfg.Logger), anchorsTurnLimit: anchorsTurnLimit,
	}, nil
}

// OnOpen implements gnet.EventHandler.
func (s *Server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	ses := newSession(s, c, func() { _ = c.Wake(nil) })
	pending := c.Context().(*pendingConn)
	pending.opened.Store(true)
	c.SetContext(ses)
	ses.peer = pending.peer
	s.mu.Lock()
	s.sessions[ses] = c
	ses.metrics = s.metricsOf(c.EventLoop())
	s.mu.Unlock()
	s.cfg.Logger.Debug("connection opened", "peer", ses.peer)
	return nil, gnet.None
}

// OnClose implements gnet.EventHandler.
func (s *Server) OnClose(c gnet.Conn, err error) gnet.Action {
	ses, ok := c.Context().(*session)
	if !ok {
		return gnet.None
	}
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	s.connections.Add(-1)
	ses.handler.close()
	reason := closeReason(ses.reason.Load())
	s.closed[reason].Add(1)
	if ses.cause != nil {
		err = ses.cause
	}
	s.peers.connectionClosed(reason, ses.peer, err)
	return gnet.None
}

// OnTraffic implements gnet.EventHandler. It takes all bytes there are, so that
// gnet never copies a remainder. Without bytes it is an answer to Wake.
func (s *Server) OnTraffic(c gnet.Conn) gnet.Action {
	ses := c.Context().(*session)
	err := s.receive(c, ses)
	switch {
	case err == nil && s.shuttingDown.Load() && ses.canClose(c):
		return ses.close(closedDraining)
	case err == nil, errors.Is(err, errConnGone):
		return gnet.None
	case errors.Is(err, errSlowReader):
		return ses.close(closedSlowReader)
	}
	ses.cause = err
	return ses.close(reasonOf(err))
}

// receive hands the session what has arrived.
func (s *Server) receive(c gnet.Conn, ses *session) error {
	p, err := c.Peek(-1)
	if err != nil {
		return nil //nolint:nilerr // the connection is closing
	}
	n := len(p)
	if n == 0 {
		return ses.resume()
	}
	if err := ses.receive(p); err != nil {
		return err
	}
	_, _ = c.Discard(n)
	return s.continueRead(c, ses, n)
}

// close sets why the connection ends and returns the action that ends it.
func (s *session) close(why closeReason) gnet.Action {
	s.reason.Store(uint32(why))
	return gnet.Close
}

// sweepEvery is how often timeouts are looked at; they are seconds long.
const sweepEvery = time.Second

// OnTick implements gnet.EventHandler: it closes connections whose time is up.
// It runs on a goroutine of its own.
func (s *Server) OnTick() (time.Duration, gnet.Action) {
	s.sweeps.Add(1)
	now := monotime.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses, c := range s.sessions {
		why := s.overdue(ses, now)
		if why == closedByPeer || why.bySilence() && unread(c.Fd()) { // OnClose needs the lock, so the descriptor is its own
			continue
		}
		ses.reason.Store(uint32(why))
		if err := c.Close(); err != nil {
			s.cfg.Logger.Warn("cannot close a connection", "reason", why, "error", err)
		}
	}
	return sweepEvery, gnet.None
}

// overdue returns the timeout that a session has passed, closedByPeer if none.
func (s *Server) overdue(ses *session, now int64) closeReason {
	limits := s.cfg.Limits
	if since := ses.messageSince.Load(); since != 0 && now-since > int64(limits.MessageTimeout) {
		return closedMessageTimeout
	}
	if since := ses.handshakeSince.Load(); since != 0 && now-since > int64(limits.HandshakeTimeout) {
		return closedHandshakeTimeout
	}
	if ttl := ses.ttl.Load(); ttl > 0 && now-ses.lastActive.Load() > ttl {
		return closedHeartbeatTimeout
	}
	between := ses.messageSince.Load() == 0 && ses.handshakeSince.Load() == 0 && ses.inFlight.Load() == 0
	if limits.IdleTimeout > 0 && between && now-ses.lastActive.Load() > int64(limits.IdleTimeout) {
		return closedIdleTimeout
	}
	return closedByPeer
}

// engineLog passes gnet's log on.
type engineLog struct{ log *slog.Logger }

func (l engineLog) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Warnf(format string, args ...any)  { l.log.Warn(fmt.Sprintf(format, args...)) }
func (l engineLog) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l engineLog) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
