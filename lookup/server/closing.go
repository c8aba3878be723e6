package server

import (
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// Which connections can be closed so that nothing is lost.

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

// isBusy reports whether a request is unfinished or a reply not sent. Any goroutine may call it.
func (c *conn) isBusy() bool {
	return c.kept.Size() > 0 || c.unsent.bytes.Load() != 0 || c.times.messageSince.Load() != 0 || c.unanswered.Load() != 0
}

// canClose reports whether closing the connection now loses nothing: no unfinished or
// unread request, and no unsent reply. Its event loop calls it.
func (c *conn) canClose() bool {
	return c.isAnswered() && c.times.messageSince.Load() == 0 && c.wire.OutboundBuffered() == 0 && !c.hasUnread()
}

// hasUnread reports whether the peer has sent bytes that are not read yet. What a TLS connection
// has goes first: it moves from there to wire. The event loop calls it, or who holds openConns.mu.
func (c *conn) hasUnread() bool {
	return c.tls != nil && c.tls.HasPending() || sockets.HasUnread(c.wire.Fd())
}

// zmtpPause is how long nothing must have happened on a ZMTP connection before Drain closes it. ZeroMQ does not send a
// request again that meets the close.
const zmtpPause = 50 * time.Millisecond

// hasPaused reports whether nothing has happened for zmtpPause.
func (t *times) hasPaused() bool { return monotime.Now()-t.lastActive.Load() >= int64(zmtpPause) }
