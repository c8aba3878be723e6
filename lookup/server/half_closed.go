package server

import (
	"errors"
	"io"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/server/internal/halfclosed"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// halfClosed is the wire of a connection whose peer has sent a FIN and may still read. gnet closes its descriptor then.
// The connection stays with its event loop. It ends when all is answered, when it breaks, or when the time of the jobs
// is over.
type halfClosed struct {
	*halfclosed.Conn
	of *conn
}

// isHalfClosed reports whether the peer has sent a FIN, and may still read. The event loop calls it.
func (c *conn) isHalfClosed() bool {
	_, is := c.wire.(*halfClosed)
	return is
}

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
	duplicate, err := halfclosed.Open(fd)
	if err != nil {
		return false
	}
	if !c.enter(stateHalfClosed, notClosed) {
		duplicate.End()
		return false
	}
	half := &halfClosed{duplicate, c}
	s.conns.mu.Lock()
	c.wire = half
	s.conns.mu.Unlock()
	half.Start(&s.halfClosed, s.jobTimeout(), func() { _ = half.Wake(nil) }, func() { _ = half.Close() })
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
