package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/listen"
)

// Start binds all addresses and serves them in the background. It returns when all are
// bound, or with an error if one cannot be. ctx bounds Start alone: its later end does not stop the server. A server
// cannot be started again, not even after an error. After Shutdown, Start returns ErrServerClosed and leaves
// nothing running.
func (s *Server) Start(ctx context.Context) error {
	ctx, err := s.beginStart(ctx)
	if err != nil {
		return err
	}
	defer close(s.startEnded)
	defer s.cancelStart()
	if err := s.serve(ctx); err != nil {
		if s.phase.reached(phaseShutdown) {
			s.stop(nil)
			return ErrServerClosed
		}
		s.stop(err)
		return err
	}
	close(s.booted)
	go s.watch(maxMissedSweeps)
	if err := ctx.Err(); err != nil {
		if s.phase.reached(phaseShutdown) {
			return errors.Join(ErrServerClosed, s.stopServing(nil))
		}
		return errors.Join(err, s.stopServing(err))
	}
	return nil
}

// serve binds the addresses and starts the event loops. On an error nothing is left open.
func (s *Server) serve(ctx context.Context) error {
	listeners, err := s.bind(ctx)
	if err != nil {
		return err
	}
	engine, err := gnet.NewClient(s.events,
		gnet.WithNumEventLoop(s.cfg.Loops),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // gnet need not set it: package net has set TCP_NODELAY
		gnet.WithTicker(true),
		gnet.WithLogger(gnetLogger{s.cfg.Logger}),
	)
	if err == nil {
		err = engine.Start()
	}
	if err != nil { // gnet has closed its own descriptors
		closeListeners(listeners)
		return fmt.Errorf("cannot start event loops: %w", err)
	}
	s.engine = engine
	if err := s.openWakeSockets(engine, s.cfg.Loops); err != nil { // Start stops the loops
		closeListeners(listeners)
		return err
	}
	for _, ln := range listeners {
		s.addrs = append(s.addrs, ln.Address)
	}
	s.workers = startWorkers(s.backend)
	if s.backend != nil {
		s.renewer = lookup.StartRenewer(s.backend, s.memoryAccount)
	}
	s.accounts.start()
	s.acceptor = startAcceptor(s, s.engine, listeners)
	return nil
}

// bind binds the addresses of the server.
func (s *Server) bind(ctx context.Context) ([]*listener, error) {
	addresses := make([]string, len(s.listeners))
	for i := range s.listeners {
		addresses[i] = s.listeners[i].Address
	}
	binder := listen.Binder{Mode: s.cfg.IPCMode, Logger: s.cfg.Logger, Given: map[string]listen.Listener{}}
	for i := range s.listeners {
		if given, ok := s.listeners[i].Socket.(listen.Listener); ok {
			binder.Given[s.listeners[i].Address] = given
		}
	}
	sockets, err := binder.BindAll(ctx, addresses)
	if err != nil {
		return nil, err
	}
	all := make([]*listener, len(sockets))
	for i, socket := range sockets {
		all[i] = &listener{Socket: socket}
		all[i].setSettings(s.listeners[i].Settings)
	}
	return all, nil
}

// closeListeners closes listeners of which no connection was accepted.
func closeListeners(listeners []*listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// Addrs returns the bound addresses, with the actual ports, in the order of Config.Listeners.
// It is valid after Start has returned nil. The caller must not modify it.
func (s *Server) Addrs() []string { return s.addrs }

// Done returns a channel that is closed when the server has stopped, by Shutdown or by
// itself, or has failed to start. Err then says why.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil if the server stopped because of Shutdown. Otherwise it wraps ErrStopped
// and the reason, also after a later Shutdown. It is valid after Done is closed.
func (s *Server) Err() error {
	if s.err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, s.err)
	}
	return nil
}

// Shutdown stops listening, and then closes each connection once its open requests are answered
// and the peer has read the replies. When ctx ends it closes the remaining ones and returns
// an error. It returns Err if the server had stopped by itself. It may be called at any
// time and repeatedly; the server cannot be started after it.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.beginShutdown() {
		s.stop(nil)
		return nil
	}
	select {
	case <-s.startEnded:
	case <-ctx.Done(): // Start stops what it has started
		select {
		case <-s.startEnded:
		default:
			return fmt.Errorf("the server is still starting: %w", ctx.Err())
		}
	}
	if !s.running() {
		return s.Err()
	}
	cut := s.closeConns(ctx)
	if err := s.stopServing(nil); err != nil {
		return errors.Join(cut, err)
	}
	return errors.Join(cut, s.Err()) // it may have stopped by itself meanwhile
}

// stopTimeout bounds the closing of loops and connections. No peer can delay that, so it
// only guards against bugs.
const stopTimeout = 10 * time.Second

// stopServing closes all listeners, connections and loops at once. why is as for stop.
func (s *Server) stopServing(why error) error {
	s.conns.each(func(c *conn) { c.end(closedDraining) })
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	s.acceptor.close(ctx) // before the loops stop, because enroll waits for a loop
	go s.stop(why)
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("event loops did not stop within %v", stopTimeout)
	}
}

// stop ends the event loops, if they run, and then the workers. why is nil if Shutdown was
// called. Only the first call has an effect.
func (s *Server) stop(why error) {
	s.stopOnce.Do(func() {
		if s.engine != nil {
			if err := s.engine.Stop(); err != nil && why == nil {
				s.cfg.Logger.Warn("event loops did not stop as they should", "error", err)
			}
		}
		if s.acceptor != nil {
			s.acceptor.tls.Close()
		}
		s.events.closeHalfClosed()
		s.cancel()
		s.workers.stop() // after the loops, which submit to them
		if s.renewer != nil {
			s.renewer.Stop() // after the loops, too
		}
		s.accounts.stop()
		s.loops.closeWakeSockets() // after the workers, which write to them
		s.err = why
		close(s.done)
	})
}

// maxMissedSweeps is how many sweeps in a row must be missing before watch stops the
// server. An overloaded machine delays sweeps and watch alike.
const maxMissedSweeps = 10

// watch stops the server when an event loop has ended by itself: new connections would go
// to that loop and hang. gnet reports it only by calling OnTick no longer.
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
