package server

import (
	"context"
	"fmt"
	"time"
)

// closePoll is the interval at which connections are looked at while they are being closed.
const closePoll = 5 * time.Millisecond

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

// zmtpConns returns the open ZMTP connections, and wakes those that have paused: their event loops close them. Unless
// it is nil, before are those of the last call: others have come since, and are not waited for, as they may come again
// and again.
func (o *openConns) zmtpConns(before map[*conn]bool) map[*conn]bool {
	open := map[*conn]bool{}
	o.wake(func(c *conn) bool {
		if !c.times.zmtp.Load() {
			return false
		}
		if before == nil || before[c] {
			open[c] = true
		}
		return c.times.hasPaused()
	})
	return open
}

// isClosing reports whether a connection is to be closed as soon as that loses nothing. Its event loop calls it.
func (s *Server) isClosing(c *conn) bool {
	switch phase(s.phase.Load()) {
	case phaseClosingZMTP:
		return c.times.zmtp.Load() && c.times.hasPaused()
	case phaseClosingAll:
		return true
	}
	return false
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

// countBusy counts the connections that are busy. It wakes those with unsent replies,
// because only their event loop can update them, and those with TLS: what they have read of
// the peer may be no request.
func (o *openConns) countBusy() int {
	o.wake(func(c *conn) bool { return c.unsent.bytes.Load() != 0 || c.tls != nil })
	return o.count((*conn).isBusy)
}

// countUnread counts the connections that are not busy but have unread bytes: their event
// loops are late.
func (o *openConns) countUnread() int {
	return o.count(func(c *conn) bool { return !c.isBusy() && c.hasUnread() })
}
