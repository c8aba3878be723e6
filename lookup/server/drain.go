package server

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// drainPoll is the interval at which drain checks whether all connections are closed.
const drainPoll = 5 * time.Millisecond

// drain stops accepting and waits until every connection is closed, or ctx ends. Each is
// closed as soon as it has no open request and no unread reply.
func (s *Server) drain(ctx context.Context) error {
	s.acceptor.close(ctx)
	s.mu.Lock()
	for _, c := range s.sessions {
		_ = c.Wake(nil) // OnTraffic closes it
	}
	s.mu.Unlock()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		busy := s.countBusy()
		if s.numSessions() == 0 && s.acceptor.tls.numUnflushed() == 0 || !s.running() {
			return nil
		}
		select {
		case <-ctx.Done():
			if busy += s.countUnread() + s.acceptor.tls.numUnflushed(); busy == 0 {
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
func (s *session) hasUnread(c peerConn) bool { return s.tls.pending() || hasUnread(c.Fd()) }

// hasUnread reports whether a socket has bytes to read.
func hasUnread(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n > 0
}
