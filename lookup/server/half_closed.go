package server

import (
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// halfClosed is the connection of a session whose peer has sent a FIN and may still read. gnet closes its descriptor then,
// so replies to what is in flight are written to a duplicate. The session stays with its event loop.
//
// One goroutine writes, one waits for a reset. The connection ends when all is answered, when it breaks, or when the time of
// the jobs is over.
type halfClosed struct {
	session *session
	conn    net.Conn // the duplicate
	fd      int      // of conn, for the event loop
	closing atomic.Bool
	written chan struct{} // holds an element if there is something to write; closed at the end

	mu      sync.Mutex
	pending []byte // replies that are not written yet
	writing int    // bytes that are written now
	err     error  // why no more can be written
}

// halfClose keeps the session of a connection that gnet closes, if its peer has sent a FIN and waits for replies. It returns
// false if there are none, or if they cannot be written. What gnet has not sent yet it may drop, so nothing can follow.
func (s *Server) halfClose(ses *session, c gnet.Conn, why error) bool {
	if !errors.Is(why, io.EOF) || closeReason(ses.reason.Load()) != closedByPeer ||
		ses.isAnswered() || c.OutboundBuffered() > 0 || sockets.IsBroken(c.Fd()) {
		return false
	}
	fd, err := c.Dup()
	if err != nil {
		return false
	}
	conn, err := sockets.ConnOf(fd)
	if err != nil {
		return false
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		_ = conn.Close()
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(s.jobTimeout()))
	h := &halfClosed{session: ses, conn: conn, written: make(chan struct{}, 1)}
	_ = raw.Control(func(fd uintptr) { h.fd = int(fd) })
	ses.conn, ses.peerConn, ses.halfClosed = h, h, h
	s.mu.Lock()
	s.sessions[ses] = h
	s.mu.Unlock()
	s.halfClosed.Go(h.write)
	s.halfClosed.Go(func() {
		_ = raw.Read(func(fd uintptr) bool { return sockets.IsBroken(int(fd)) }) // it fails after the deadline
		_ = h.Close()
	})
	ses.loop.push(ses)
	return true
}

// jobTimeout returns how long a job takes at most.
func (s *Server) jobTimeout() time.Duration {
	if s.backend == nil {
		return tlspair.FlushTimeout
	}
	return max(s.backend.Config().Timeout, s.backend.Config().WriteTimeout)
}

// isAnswered reports whether no complete request of the connection waits for its reply.
func (s *session) isAnswered() bool { return s.inFlight.Load() == 0 && s.kept.size == 0 }

// Write implements replyWriter. The event loop calls it.
func (h *halfClosed) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return 0, h.err
	}
	h.pending = append(h.pending, b...)
	select {
	case h.written <- struct{}{}:
	default:
	}
	return len(b), nil
}

// write writes replies until the end, and wakes the session when it has written some.
func (h *halfClosed) write() {
	for range h.written {
		h.mu.Lock()
		b := h.pending
		h.pending, h.writing = nil, len(b)
		h.mu.Unlock()
		_, err := h.conn.Write(b)
		h.mu.Lock()
		h.writing, h.err = 0, err
		h.mu.Unlock()
		_ = h.Wake(nil)
	}
}

// OutboundBuffered implements replyWriter.
func (h *halfClosed) OutboundBuffered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending) + h.writing
}

// Fd implements peerConn.
func (h *halfClosed) Fd() int { return h.fd }

// Wake implements peerConn.
func (h *halfClosed) Wake(gnet.AsyncCallback) error {
	h.session.loop.push(h.session)
	return nil
}

// Close implements peerConn: the event loop ends the session.
func (h *halfClosed) Close() error {
	h.closing.Store(true)
	return h.Wake(nil)
}

// end ends the goroutines. The event loop calls it, or stop.
func (h *halfClosed) end() {
	close(h.written)
	_ = h.conn.Close()
}

// closeHalfClosed ends the half-closed connections, and waits for their goroutines. The event loops have ended.
func (s *Server) closeHalfClosed() {
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.sessions))
	s.mu.Unlock()
	for _, ses := range left {
		if ses.halfClosed != nil {
			s.close(ses, nil)
		}
	}
	s.halfClosed.Wait()
}
