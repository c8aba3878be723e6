package server

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How a server ends.

// Drain prepares for Shutdown. At once Ready fails and pings say that the server is draining. It serves everything for
// a time, in which balancers learn of that. Then it closes the ZMTP connections there are, each after a pause in it,
// and returns when all are closed or ctx ends: ZeroMQ sends no request again that is lost, as our clients do. Raw
// connections are served on, and new ones accepted, until Shutdown.
func (s *Server) Drain(ctx context.Context, delay time.Duration) {
	s.phase.advance(phaseDraining)
	select {
	case <-s.booted:
	default: // there is nobody to wait for
		return
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	case <-s.done:
	}
	s.phase.advance(phaseClosingZMTP)
	tick := time.NewTicker(closePoll)
	defer tick.Stop()
	for before := s.conns.zmtpConns(nil); len(before) > 0; before = s.conns.zmtpConns(before) {
		select {
		case <-ctx.Done():
			return
		case <-s.done:
			return
		case <-tick.C:
		}
	}
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

// closeConns stops accepting, then closes each connection as soon as it has no open request and no unread reply, and
// waits for that until ctx ends. Nobody is closed before the listeners: who comes again would find them.
func (s *Server) closeConns(ctx context.Context) error {
	s.acceptor.close(ctx)
	s.phase.advance(phaseClosingAll)
	s.conns.wake(func(*conn) bool { return true }) // OnTraffic closes it
	tick := time.NewTicker(s.closePoll)
	defer tick.Stop()
	for {
		busy := s.conns.countBusy()
		if s.conns.number() == 0 && s.acceptor.tls.NumUnflushed() == 0 || !s.running() {
			return nil
		}
		select {
		case <-ctx.Done():
			if busy += s.conns.countUnread() + s.acceptor.tls.NumUnflushed(); busy == 0 {
				return nil
			}
			return fmt.Errorf("%d connections cut off in the middle of a request: %w", busy, ctx.Err())
		case <-s.conns.emptied: // who was closed waits for the next server
		case <-tick.C:
		}
	}
}

// closePoll is the interval at which connections are looked at while they are being closed.
const closePoll = 5 * time.Millisecond

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

// stopTimeout bounds the closing of loops and connections. No peer can delay that, so it
// only guards against bugs.
const stopTimeout = 10 * time.Second

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
