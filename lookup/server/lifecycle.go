package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// lifecycle is the state that Start and Shutdown share. A server is new, then it
// starts, serves and stops. Shutdown may come at any time, also beside Start, which then
// leaves nothing running.
type lifecycle struct {
	shuttingDown atomic.Bool // Shutdown was called; set under mu

	mu          sync.Mutex
	started     bool               // Start was called
	cancelStart context.CancelFunc // ends a Start that is under way
	startEnded  chan struct{}      // closed when Start has returned

	booted  chan struct{} // closed when the server listens
	stopped sync.Once
	done    chan struct{} // closed when the loops have ended
	err     error         // why they did, if nobody asked; read after done
}

func newLifecycle() lifecycle {
	return lifecycle{startEnded: make(chan struct{}), booted: make(chan struct{}), done: make(chan struct{})}
}

// errStarted refuses to start a server twice.
var errStarted = errors.New("server: it was started before; make another one")

// beginStart records that Start began, and returns a context that ends with ctx or when
// Shutdown is called.
func (l *lifecycle) beginStart(ctx context.Context) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.shuttingDown.Load():
		return nil, ErrServerClosed
	case l.started:
		return nil, errStarted
	}
	l.started = true
	ctx, l.cancelStart = context.WithCancel(ctx)
	return ctx, nil
}

// beginShutdown records that Shutdown was called and ends a Start that is under way. It
// returns whether there was a Start.
func (l *lifecycle) beginShutdown() (started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shuttingDown.Store(true)
	if l.started {
		l.cancelStart()
	}
	return l.started
}

// Start binds all addresses and serves them in the background. It returns when they are
// bound, or with the reason why one cannot be. ctx bounds Start alone: its end later does
// not stop the server. A server whose Start has failed cannot be started again. Once
// Shutdown has been called it returns ErrServerClosed, and nothing runs.
func (s *Server) Start(ctx context.Context) error {
	ctx, err := s.beginStart(ctx)
	if err != nil {
		return err
	}
	defer close(s.startEnded)
	defer s.cancelStart()
	if err := s.serve(ctx); err != nil {
		if s.shuttingDown.Load() {
			s.stop(nil)
			return ErrServerClosed
		}
		s.stop(err)
		return err
	}
	close(s.booted)
	go s.watch(maxMissedSweeps)
	if err := ctx.Err(); err != nil {
		if s.shuttingDown.Load() {
			return errors.Join(ErrServerClosed, s.stopServing(nil))
		}
		return errors.Join(err, s.stopServing(err))
	}
	return nil
}

// serve listens and starts the event loops, or leaves nothing behind.
func (s *Server) serve(ctx context.Context) error {
	listeners, err := listenAll(ctx, &s.cfg)
	if err != nil {
		return err
	}
	engine, err := gnet.NewClient(s,
		gnet.WithNumEventLoop(s.cfg.Loops),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // leave it: Go has set no delay
		gnet.WithTicker(true),
		gnet.WithLogger(engineLog{s.cfg.Logger}),
	)
	if err == nil {
		err = engine.Start()
	}
	if err != nil { // gnet has closed what it had opened
		closeAll(listeners)
		return fmt.Errorf("server: cannot start event loops: %w", err)
	}
	s.engine = engine
	for _, ln := range listeners {
		s.addrs = append(s.addrs, ln.addr)
	}
	s.workers = startWorkerPools(s.remote)
	s.acceptor = startAcceptor(s, s.engine, listeners)
	return nil
}

// Addrs returns the bound addresses in the order of Config.Listen, with the
// ports that were taken. Valid once Start has returned nil.
func (s *Server) Addrs() []string { return s.addrs }

// Done is closed when the server has stopped, asked to or not; Err then tells
// which. A Shutdown before Start closes it too.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil if the server stopped because Shutdown was called, and
// otherwise why it stopped or did not start, also after a later Shutdown. Valid once
// Done is closed.
func (s *Server) Err() error {
	if s.err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, s.err)
	}
	return nil
}

// Shutdown stops listening, lets requests that have begun finish and their replies
// be taken until ctx ends, then closes everything. It returns nil when nothing was
// cut off, and Err if the server had stopped by itself before. It may be called at any
// time, and again; after it the server cannot be started.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.beginShutdown() {
		s.stop(nil)
		return nil
	}
	select {
	case <-s.startEnded:
	case <-ctx.Done(): // Start stops what it has started
		return fmt.Errorf("server: still starting: %w", ctx.Err())
	}
	if !s.running() {
		return s.Err()
	}
	cut := s.drain(ctx)
	if err := s.stopServing(nil); err != nil {
		return errors.Join(cut, err)
	}
	return errors.Join(cut, s.Err()) // it may have stopped by itself meanwhile
}

// stopTimeout bounds the closing of loops and connections; it needs no peer, so it
// only guards against our own mistakes.
const stopTimeout = 10 * time.Second

// stopServing closes everything, whatever is under way. why is as for stop.
func (s *Server) stopServing(why error) error {
	s.mu.Lock()
	for ses := range s.sessions {
		ses.reason.CompareAndSwap(uint32(closedByPeer), uint32(closedDraining))
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	s.acceptor.close(ctx) // before the loops stop: a connection being enrolled waits for its loop
	go s.stop(why)
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("server: event loops did not stop within %v", stopTimeout)
	}
}

// stop ends the event loops, if they run, and all that depends on them. why is nil if
// somebody asked for it; only the first call counts.
func (s *Server) stop(why error) {
	s.stopped.Do(func() {
		if s.engine != nil {
			if err := s.engine.Stop(); err != nil && why == nil {
				s.cfg.Logger.Warn("event loops did not stop as they should", "error", err)
			}
		}
		s.workers.stop() // no loop is left that could submit
		s.peers.flush(true)
		s.err = why
		close(s.done)
	})
}

// maxMissedSweeps is how many sweeps in a row must be missing for the engine to be
// gone; a machine that is short of time delays them as it delays who watches.
const maxMissedSweeps = 10

// watch notices when an event loop has ended by itself, which gnet tells nobody:
// it no longer sweeps then. New connections would go to that loop and hang.
func (s *Server) watch(maxMissed int) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	last, missed := int64(0), 0
	for missed < maxMissed {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		s.peers.flush(false) // here, not in OnTick: a log may block
		if n := s.sweeps.Load(); n != last {
			last, missed = n, 0
		} else {
			missed++
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
	defer cancel()
	s.acceptor.close(ctx)
	s.stop(errors.New("an event loop ended"))
}
