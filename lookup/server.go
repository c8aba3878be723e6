package lookup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// ServerConfig configures a Server. Zero fields mean the defaults.
type ServerConfig struct {
	// Listen holds the addresses to serve on: tcp://host:port, where port 0 takes a
	// free one, ipc:///path or ipc://@name. Default: DefaultListen.
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

// DefaultListen is where a server listens and a client connects when nothing else
// is said. Loopback, because peers are not authenticated.
const DefaultListen = "tcp://127.0.0.1:7557"

// Server serves a Service on TCP and unix sockets. It is started once and shut
// down once.
type Server struct {
	gnet.BuiltinEventEngine

	service *Service
	cfg     ServerConfig
	engine  *gnet.Client // event loops without listeners
	door    *door        // the listeners
	addrs   []string
	booted  chan struct{} // closed when it listens
	stopped sync.Once
	done    chan struct{} // closed when the loops have ended
	err     error         // why they did, if nobody asked; read after done
	asked   atomic.Bool   // Shutdown was called

	crews *crews // nil over the memory index
	peers *peerLog

	mu       sync.Mutex
	sessions map[*session]gnet.Conn
	meters   map[gnet.EventLoop]*meter
	noLoop   meter // of sessions without a loop

	walkPatience time.Duration

	sweeps atomic.Int64 // calls of OnTick, see watch

	connections, failed, dropped, ignored, copied, flying atomic.Int64
	anchored, undetermined, fallbacks                     atomic.Int64 // requests by anchors
	acceptErrors                                          atomic.Int64
	closed                                                closeCounters
}

// readBuffer is the size in bytes of a loop's read buffer, and so the most that
// a connection is served before it is another one's turn. 64 KiB is a lookup of
// 2,048 hashes; it takes well under a millisecond.
const readBuffer = 64 << 10

// NewServer prepares a server. It opens nothing yet.
func NewServer(service *Service, cfg ServerConfig) (*Server, error) {
	if len(cfg.Listen) == 0 {
		cfg.Listen = []string{DefaultListen}
	}
	for _, addr := range cfg.Listen {
		if _, _, err := SplitAddress(addr); err != nil {
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
		service: service, cfg: cfg,
		booted: make(chan struct{}), done: make(chan struct{}),
		sessions: map[*session]gnet.Conn{}, meters: map[gnet.EventLoop]*meter{},
		peers: newPeerLog(cfg.Logger), walkPatience: walkPatience,
	}, nil
}

// Start binds all addresses and serves them in the background. It returns when
// they are bound, or with the reason why one cannot be.
func (s *Server) Start(ctx context.Context) error {
	listeners, err := listenAll(ctx, &s.cfg)
	if err != nil {
		s.stop(err)
		return err
	}
	s.engine, err = gnet.NewClient(s,
		gnet.WithNumEventLoop(s.cfg.Loops),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // leave it: Go has set no delay
		gnet.WithTicker(true),
		gnet.WithLogger(engineLog{s.cfg.Logger}),
	)
	if err == nil {
		err = s.engine.Start()
	}
	if err != nil {
		closeAll(listeners)
		s.engine = nil // gnet has closed what it had opened
		err = fmt.Errorf("lookup: cannot start event loops: %w", err)
		s.stop(err)
		return err
	}
	for _, ln := range listeners {
		s.addrs = append(s.addrs, ln.addr)
	}
	s.crews = startCrews(s.service)
	s.door = openDoor(s, s.engine, listeners)
	close(s.booted)
	go s.watch(silentSweeps)
	if err := ctx.Err(); err != nil {
		return errors.Join(err, s.Shutdown(ctx))
	}
	return nil
}

// Addrs returns the bound addresses in the order of ServerConfig.Listen, with the
// ports that were taken. Valid once Start has returned nil.
func (s *Server) Addrs() []string { return s.addrs }

// Done is closed when the server has stopped, asked to or not; Err then tells
// which.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil if the server stopped because Shutdown was called, and
// otherwise why it stopped. Valid once Done is closed.
func (s *Server) Err() error {
	if s.asked.Load() {
		return nil
	}
	if s.err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, s.err)
	}
	return ErrStopped
}

// Shutdown stops listening, lets requests that have begun finish and their replies
// be taken until ctx ends, then closes everything. It returns nil when nothing was
// cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.asked.Store(true)
	if s.door == nil {
		return nil // it is not serving
	}
	cut := s.drain(ctx)
	s.mu.Lock()
	for ses := range s.sessions {
		ses.reason.CompareAndSwap(uint32(closedByPeer), uint32(closedDraining))
	}
	s.mu.Unlock()
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	s.door.close(stopCtx) // who is on the way to a loop would wait for ever if it had stopped
	go s.stop(nil)
	select {
	case <-s.done:
		return cut
	case <-stopCtx.Done():
		return errors.Join(cut, fmt.Errorf("lookup: event loops did not stop within %v", stopTimeout))
	}
}

// stopTimeout bounds the closing of loops and connections; it needs no peer, so it
// only guards against our own mistakes.
const stopTimeout = 10 * time.Second

// stop ends the event loops, if they run, and all that depends on them.
func (s *Server) stop(why error) {
	s.stopped.Do(func() {
		if s.engine != nil {
			if err := s.engine.Stop(); why == nil {
				why = err
			}
		}
		s.crews.stop() // no loop is left that could submit
		s.peers.flush(true)
		s.err = why
		close(s.done)
	})
}

// silentSweeps is how many sweeps in a row must be missing for the engine to be
// gone; a machine that is short of time delays them as it delays who watches.
const silentSweeps = 10

// watch notices when an event loop has ended by itself, which gnet tells nobody:
// it no longer sweeps then. New connections would go to that loop and hang.
func (s *Server) watch(patience int) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	last, silent := int64(0), 0
	for silent < patience {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		s.peers.flush(false) // here, as a log may be stuck, and who sweeps must not be
		if n := s.sweeps.Load(); n != last {
			last, silent = n, 0
		} else {
			silent++
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
	defer cancel()
	s.door.close(ctx)
	s.stop(errors.New("an event loop ended"))
}

// OnOpen implements gnet.EventHandler.
func (s *Server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	ses := newSession(s, c)
	if ses.flights != nil {
		ses.flights.wake = func() { _ = c.Wake(nil) }
	}
	v := c.Context().(*visitor)
	v.opened.Store(true)
	c.SetContext(ses)
	ses.peer = v.peer
	s.mu.Lock()
	s.sessions[ses] = c
	ses.meter = s.meterOf(c.EventLoop())
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
	ses.abandon()
	ses.ground()
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
	err := s.take(c, ses)
	switch {
	case err == nil && s.asked.Load() && ses.mayLeave(c):
		return ses.close(closedDraining)
	case err == nil, errors.Is(err, errGone):
		return gnet.None
	case errors.Is(err, errSlowReader):
		return ses.close(closedSlowReader)
	}
	ses.cause = err
	return ses.close(reasonOf(err))
}

// take hands the session what has arrived.
func (s *Server) take(c gnet.Conn, ses *session) error {
	p, err := c.Peek(-1)
	if err != nil {
		return nil //nolint:nilerr // the connection is closing
	}
	n := len(p)
	if n == 0 {
		return ses.woken()
	}
	if err := ses.receive(p); err != nil {
		return err
	}
	_, _ = c.Discard(n)
	return s.readOn(c, ses, n)
}

// close notes why the connection ends and returns the action that ends it.
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
	now := time.Now().UnixNano()
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
	if since := ses.shakingSince.Load(); since != 0 && now-since > int64(limits.HandshakeTimeout) {
		return closedHandshakeTimeout
	}
	if ttl := ses.ttl.Load(); ttl > 0 && now-ses.lastActive.Load() > ttl {
		return closedHeartbeatTimeout
	}
	between := ses.messageSince.Load() == 0 && ses.shakingSince.Load() == 0 && ses.inFlight.Load() == 0
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
