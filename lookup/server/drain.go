package server

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

const (
	// drainPoll is the interval at which connections are looked at while they are being closed.
	drainPoll = 5 * time.Millisecond
	// zmtpPause is how long nothing must have happened on a ZMTP connection before Drain closes it. ZeroMQ does not send a
	// request again that meets the close.
	zmtpPause = 50 * time.Millisecond
)

// Values of lifecycle.closing.
const (
	closingNone uint32 = iota
	closingZMTP        // ZMTP connections, after a pause
	closingAll
)

// Drain prepares for Shutdown. At once Ready fails and pings say that the server is draining. It serves everything for a
// time, in which balancers learn of that. Then it closes the ZMTP connections there are, each after a pause in it, and
// returns when all are closed or ctx ends: ZeroMQ sends no request again that is lost, as our clients do. Raw connections
// are served on, and new ones accepted, until Shutdown.
func (s *Server) Drain(ctx context.Context, delay time.Duration) {
	s.draining.Store(true)
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
	s.closing.CompareAndSwap(closingNone, closingZMTP)
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for before := s.zmtpSessions(nil); len(before) > 0; before = s.zmtpSessions(before) {
		select {
		case <-ctx.Done():
			return
		case <-s.done:
			return
		case <-tick.C:
		}
	}
}

// zmtpSessions returns the open ZMTP connections, and wakes those that have paused: their event loops close them. Unless it
// is nil, before are those of the last call: others have come since, and are not waited for, as they may come again and
// again.
func (s *Server) zmtpSessions(before map[*session]bool) map[*session]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := map[*session]bool{}
	for ses, c := range s.sessions {
		if !ses.zmtp.Load() {
			continue
		}
		if ses.hasPaused() {
			_ = c.Wake(nil) // it is being closed already
		}
		if before == nil || before[ses] {
			open[ses] = true
		}
	}
	return open
}

// hasPaused reports whether nothing has happened for zmtpPause. Any goroutine may call it.
func (s *session) hasPaused() bool { return monotime.Now()-s.lastActive.Load() >= int64(zmtpPause) }

// isClosing reports whether a session is to be closed as soon as that loses nothing. Its event loop calls it.
func (s *Server) isClosing(ses *session) bool {
	switch s.closing.Load() {
	case closingNone:
		return false
	case closingZMTP:
		return ses.zmtp.Load() && ses.hasPaused()
	}
	return true
}

// drain stops accepting, then closes each connection as soon as it has no open request and no unread reply, and waits for
// that until ctx ends. Nobody is closed before the listeners: who comes again would find them.
func (s *Server) drain(ctx context.Context) error {
	s.acceptor.close(ctx)
	s.closing.Store(closingAll)
	s.mu.Lock()
	for _, c := range s.sessions {
		_ = c.Wake(nil) // OnTraffic closes it
	}
	s.mu.Unlock()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		busy := s.countBusy()
		if s.numSessions() == 0 && s.acceptor.tls.NumUnflushed() == 0 || !s.running() {
			return nil
		}
		select {
		case <-ctx.Done():
			if busy += s.countUnread() + s.acceptor.tls.NumUnflushed(); busy == 0 {
				return nil
			}
			return fmt.Errorf("%d connections cut off in the middle of a request: %w", busy, ctx.Err())
		case <-tick.C:
		}
	}
}

// countBusy counts the connections that are busy. It wakes those with unsent replies,
// because only their event loop can update unsent, and those with TLS: what they have read of
// the peer may be no request.
func (s *Server) countBusy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ses, c := range s.sessions {
		if ses.unsent.Load() != 0 || ses.tls != nil {
			_ = c.Wake(nil)
		}
		if ses.busy() {
			n++
		}
	}
	return n
}

// countUnread counts the connections that are not busy but have unread bytes: their event
// loops are late.
func (s *Server) countUnread() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ses, c := range s.sessions {
		if !ses.busy() && ses.hasUnread(c) { // s.mu keeps the descriptor open: see OnClose
			n++
		}
	}
	return n
}

// busy reports whether a request is unfinished or a reply not sent. Any goroutine may call
// it.
func (s *session) busy() bool {
	return s.keeping.Load() || s.unsent.Load() != 0 || s.messageSince.Load() != 0 || s.inFlight.Load() != 0
}

// numSessions returns the number of open connections.
func (s *Server) numSessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// canClose reports whether closing the connection now loses nothing: no unfinished or
// unread request, and no unsent reply. It is called on the connection's event loop.
func (s *session) canClose(c peerConn) bool {
	return !s.keeping.Load() && s.messageSince.Load() == 0 && s.inFlight.Load() == 0 && c.OutboundBuffered() == 0 && !s.hasUnread(c)
}

// hasUnread reports whether the peer has sent bytes that are not read yet. What a TLS connection
// has goes first: it moves from there to c.
func (s *session) hasUnread(c peerConn) bool {
	return s.tls != nil && s.tls.HasPending() || sockets.HasUnread(c.Fd())
}
