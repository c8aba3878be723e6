package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// ServerConfig configures a Server. Zero fields mean the defaults.
type ServerConfig struct {
	// Listen holds the addresses to serve on, tcp://host:port; port 0 takes a
	// free one. Default: DefaultListen.
	Listen []string
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

// Server serves a Service on TCP. It is started once and shut down once.
type Server struct {
	gnet.BuiltinEventEngine

	service *Service
	cfg     ServerConfig
	engine  gnet.Engine
	addrs   []string
	booted  chan struct{} // closed by OnBoot
	done    chan struct{} // closed when the engine has returned
	err     error         // why it returned; read after done
	asked   atomic.Bool   // Shutdown was called

	crews *crews // nil over the memory index

	mu       sync.Mutex
	sessions map[*session]gnet.Conn

	connections, failed, dropped, ignored, copied, flying atomic.Int64
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
		if !strings.HasPrefix(addr, "tcp://") {
			return nil, fmt.Errorf("%w: listen address %q: only tcp://host:port is served", ErrConfig, addr)
		}
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
		sessions: map[*session]gnet.Conn{},
	}, nil
}

// Start binds all addresses and serves them in the background. It returns when
// they are bound, or with the reason why one cannot be.
func (s *Server) Start(ctx context.Context) error {
	s.crews = startCrews(s.service)
	go func() {
		defer close(s.done)
		defer s.crews.stop() // when no loop is left that could submit
		s.err = gnet.Rotate(s, s.cfg.Listen,
			gnet.WithNumEventLoop(s.cfg.Loops),
			gnet.WithLoadBalancing(gnet.LeastConnections),
			gnet.WithReadBufferCap(readBuffer),
			gnet.WithReuseAddr(true), // a restart must not wait for the connections that we closed to be forgotten
			gnet.WithTicker(true),
			gnet.WithLogger(engineLog{s.cfg.Logger}),
		)
	}()
	select {
	case <-s.booted:
		return nil
	case <-s.done:
		return fmt.Errorf("lookup: cannot serve %s: %w", strings.Join(s.cfg.Listen, ", "), s.err)
	case <-ctx.Done():
		select { // binding waits for nobody
		case <-s.booted:
			return errors.Join(ctx.Err(), s.Shutdown(ctx))
		case <-s.done:
			return ctx.Err()
		}
	}
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
	return fmt.Errorf("%w without an error; it may have run out of file descriptors", ErrStopped)
}

// Shutdown refuses new connections, lets requests that have begun finish and
// their replies be taken until ctx ends, then closes everything. It returns nil when nothing was cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.asked.Store(true)
	cut := s.drain(ctx)
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	stopped := make(chan struct{})
	go func() { // it polls twice a second; done is closed as soon as the loops are
		defer close(stopped)
		_ = s.engine.Stop(stopCtx)
	}()
	var err error
	select {
	case <-s.done:
	case <-stopCtx.Done():
		err = fmt.Errorf("lookup: event loops did not stop: %w", stopCtx.Err())
	}
	cancel()
	<-stopped
	return errors.Join(cut, err)
}

const (
	// drainPoll is how often a draining server looks whether it is done.
	drainPoll = 5 * time.Millisecond
	// stopTimeout bounds the closing of loops and connections; it needs no peer,
	// so it only guards against our own mistakes.
	stopTimeout = 10 * time.Second
)

func (s *Server) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// drain waits until no request is under way and no reply unsent, or for the end of ctx.
func (s *Server) drain(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		busy := s.busy()
		if busy == 0 || !s.running() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lookup: %d connections cut off in the middle of a request: %w", busy, ctx.Err())
		case <-tick.C:
		}
	}
}

// busy counts the connections whose requests are not finished or whose replies
// are not taken.
func (s *Server) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ses, c := range s.sessions {
		unsent := ses.unsent.Load() != 0
		if unsent {
			_ = c.Wake(nil) // to look again; only the connection's loop can
		}
		if unsent || ses.messageSince.Load() != 0 || ses.inFlight.Load() != 0 {
			n++
		}
	}
	return n
}

// OnBoot implements gnet.EventHandler: all listeners are bound.
func (s *Server) OnBoot(engine gnet.Engine) gnet.Action {
	s.engine = engine
	for _, addr := range s.cfg.Listen {
		bound, err := boundAddress(engine, strings.TrimPrefix(addr, "tcp://"))
		if err != nil {
			s.cfg.Logger.Warn("cannot tell the bound address", "listen", addr, "error", err)
			bound = addr
		}
		s.addrs = append(s.addrs, bound)
	}
	close(s.booted)
	return gnet.None
}

// boundAddress asks the kernel what a listener is bound to; gnet does not tell.
func boundAddress(engine gnet.Engine, addr string) (string, error) {
	fd, err := engine.DupListener("tcp", addr)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return "tcp://" + net.JoinHostPort(host, fmt.Sprint(sa.Port)), nil
	case *unix.SockaddrInet6:
		return "tcp://" + net.JoinHostPort(host, fmt.Sprint(sa.Port)), nil
	}
	return "", errors.New("not a TCP socket")
}

// OnOpen implements gnet.EventHandler.
func (s *Server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	ses := newSession(s, c)
	if ses.flights != nil {
		ses.flights.wake = func() { _ = c.Wake(nil) }
	}
	c.SetContext(ses)
	n := s.connections.Add(1)
	s.mu.Lock()
	s.sessions[ses] = c
	s.mu.Unlock()
	switch {
	case s.asked.Load():
		return nil, ses.close(closedDraining)
	case n > int64(s.cfg.Limits.MaxConnections):
		return nil, ses.close(closedMaxConnections)
	}
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
	if reason != closedByPeer {
		s.cfg.Logger.Debug("connection closed", "reason", reason, "peer", c.RemoteAddr(), "error", err)
	}
	return gnet.None
}

// OnTraffic implements gnet.EventHandler. It takes all bytes there are, so that
// gnet never copies a remainder. Without bytes it is an answer to Wake.
func (s *Server) OnTraffic(c gnet.Conn) gnet.Action {
	ses := c.Context().(*session)
	p, err := c.Peek(-1)
	if err != nil {
		return gnet.None
	}
	n := len(p)
	if n > 0 {
		err = ses.receive(p)
	} else {
		err = ses.woken()
	}
	switch {
	case errors.Is(err, errGone):
		return gnet.None
	case errors.Is(err, errSlowReader):
		return ses.close(closedSlowReader)
	case err != nil:
		s.cfg.Logger.Debug("broken framing", "peer", c.RemoteAddr(), "error", err)
		return ses.close(reasonOf(err))
	}
	if n > 0 { // 0 would mean everything
		_, _ = c.Discard(n)
	}
	return gnet.None
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
	now := time.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses, c := range s.sessions {
		why := s.overdue(ses, now)
		if why == closedByPeer {
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
	if limits.IdleTimeout > 0 && ses.inFlight.Load() == 0 && now-ses.lastActive.Load() > int64(limits.IdleTimeout) {
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
