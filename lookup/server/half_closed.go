package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// halfClosed is the wire of a connection whose peer has sent a FIN and may still read. gnet closes its descriptor then,
// so replies to what is in flight are written to a duplicate. The connection stays with its event loop.
//
// One goroutine writes, one waits for a reset. The connection ends when all is answered, when it breaks, or when the
// time of the jobs is over.
type halfClosed struct {
	of      *conn
	socket  net.Conn      // the duplicate
	fd      int           // of socket, for the event loop
	written chan struct{} // holds an element if there is something to write; closed at the end

	mu      sync.Mutex
	pending []byte // replies that are not written yet
	writing int    // bytes that are written now
	err     error  // why no more can be written
}

// isHalfClosed reports whether the peer has sent a FIN, and may still read. The event loop calls it.
func (c *conn) isHalfClosed() bool {
	_, is := c.wire.(*halfClosed)
	return is
}

// Write implements peerConn. The event loop calls it.
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

// write writes replies until the end, and wakes the connection when it has written some.
func (h *halfClosed) write() {
	for range h.written {
		h.mu.Lock()
		b := h.pending
		h.pending, h.writing = nil, len(b)
		h.mu.Unlock()
		_, err := h.socket.Write(b)
		h.mu.Lock()
		h.writing, h.err = 0, err
		h.mu.Unlock()
		_ = h.Wake(nil)
	}
}

// OutboundBuffered implements peerConn.
func (h *halfClosed) OutboundBuffered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending) + h.writing
}

// Fd implements peerConn.
func (h *halfClosed) Fd() int { return h.fd }

// Wake implements peerConn.
func (h *halfClosed) Wake(gnet.AsyncCallback) error {
	h.of.loop.push(h.of)
	return nil
}

// Close implements peerConn: the event loop closes the connection.
func (h *halfClosed) Close() error {
	h.of.end(closedByPeer)
	return h.Wake(nil)
}

// end ends the goroutines. The event loop calls it, or stop.
func (h *halfClosed) end() {
	close(h.written)
	_ = h.socket.Close()
}

// halfClose keeps a connection that gnet closes, if its peer has sent a FIN and waits for replies. It returns
// false if there are none, or if they cannot be written. What gnet has not sent yet it may drop, so nothing can follow.
func (h *eventHandler) halfClose(c *conn, g gnet.Conn, why error) bool {
	s := h.server
	if !errors.Is(why, io.EOF) || c.isAnswered() || g.OutboundBuffered() > 0 || sockets.IsBroken(g.Fd()) {
		return false
	}
	fd, err := g.Dup()
	if err != nil {
		return false
	}
	socket, err := sockets.ConnOf(fd)
	if err != nil {
		return false
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil || !c.enter(stateHalfClosed, notClosed) {
		_ = socket.Close()
		return false
	}
	_ = socket.SetDeadline(time.Now().Add(s.jobTimeout()))
	half := &halfClosed{of: c, socket: socket, written: make(chan struct{}, 1)}
	_ = raw.Control(func(fd uintptr) { half.fd = int(fd) })
	s.conns.mu.Lock()
	c.wire = half
	s.conns.mu.Unlock()
	s.halfClosed.Go(half.write)
	s.halfClosed.Go(func() {
		_ = raw.Read(func(fd uintptr) bool { return sockets.IsBroken(int(fd)) }) // it fails after the deadline
		_ = half.Close()
	})
	c.loop.push(c)
	return true
}

// closeHalfClosed ends the half-closed connections, and waits for their goroutines. The event loops have ended.
func (h *eventHandler) closeHalfClosed() {
	s := h.server
	var left []*conn
	s.conns.each(func(c *conn) {
		if _, is := c.wire.(*halfClosed); is {
			left = append(left, c)
		}
	})
	for _, c := range left {
		h.close(c, nil)
	}
	s.halfClosed.Wait()
}

// jobTimeout returns how long a job takes at most.
func (s *shared) jobTimeout() time.Duration {
	if s.backend == nil {
		return tlspair.FlushTimeout
	}
	return max(s.backend.Config().Timeout, s.backend.Config().WriteTimeout)
}
