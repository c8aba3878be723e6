package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/listen"
)

// How a server begins.

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
