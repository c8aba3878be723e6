package server

import (
	"context"
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// drainPoll is how often a draining server looks whether it is done.
const drainPoll = 5 * time.Millisecond

// drain stops accepting and waits until every connection is closed, each as soon
// as nothing of it is under way, or for the end of ctx.
func (s *Server) drain(ctx context.Context) error {
	s.acceptor.close(ctx)
	s.mu.Lock()
	for _, c := range s.sessions {
		_ = c.Wake(nil) // it closes itself: see OnTraffic
	}
	s.mu.Unlock()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		busy := s.busy()
		if s.open() == 0 || !s.running() {
			return nil
		}
		select {
		case <-ctx.Done():
			if busy += s.unreadConns(); busy == 0 {
				return nil
			}
			return fmt.Errorf("server: %d connections cut off in the middle of a request: %w", busy, ctx.Err())
		case <-tick.C:
		}
	}
}

func (s *Server) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// busy counts the connections whose requests are not finished or whose replies
// are not taken.
func (s *Server) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ses, c := range s.sessions {
		if ses.unsent.Load() != 0 {
			_ = c.Wake(nil) // to look again; only the connection's loop can
		}
		if ses.busy() {
			n++
		}
	}
	return n
}

// unreadConns counts the connections that only seem not to be busy: their loops have not
// read what has arrived.
func (s *Server) unreadConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ses, c := range s.sessions {
		if !ses.busy() && unread(c.Fd()) { // OnClose, which needs the lock, comes before the descriptor is closed
			n++
		}
	}
	return n
}

// busy tells whether a request is not finished or a reply not taken.
func (s *session) busy() bool {
	return s.unsent.Load() != 0 || s.messageSince.Load() != 0 || s.inFlight.Load() != 0
}

// open counts the connections.
func (s *Server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// canClose tells, on the connection's loop, whether nothing would be lost if it
// were closed now: no request under way, arrived and not read, or not answered,
// and no reply untaken.
func (s *session) canClose(c gnet.Conn) bool {
	return s.messageSince.Load() == 0 && s.inFlight.Load() == 0 && c.OutboundBuffered() == 0 && !unread(c.Fd())
}

// unread tells whether bytes of the peer wait to be read.
func unread(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n > 0
}
