package server

import (
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// overdue returns the timeout that a connection has passed, notClosed if it has passed none. Any goroutine may call it.
func (c *conn) overdue(now int64) closeReason {
	t, limits := c.times, c.limits.Load()
	if since := c.unsent.since.Load(); since != 0 && now-since > int64(limits.WriteTimeout) {
		return closedWriteTimeout
	}
	if t.expiredAt(time.Now()) {
		return closedExpired
	}
	if c.kept.size() > 0 { // the server is late, not its peer
		return notClosed
	}
	if since := t.messageSince.Load(); since != 0 && now-since > int64(limits.MessageTimeout) {
		return closedMessageTimeout
	}
	if since := t.handshakeSince.Load(); since != 0 && now-since > int64(limits.HandshakeTimeout) {
		return closedHandshakeTimeout
	}
	if ttl := t.ttl.Load(); ttl > 0 && now-t.lastActive.Load() > ttl {
		return closedHeartbeatTimeout
	}
	idle := t.messageSince.Load() == 0 && t.handshakeSince.Load() == 0 && c.unanswered.Load() == 0
	if limits.IdleTimeout > 0 && idle && now-t.lastActive.Load() > int64(limits.IdleTimeout) {
		return closedIdleTimeout
	}
	return notClosed
}

// exceededLimit returns which limit the peer has passed if another goroutine has ended the connection for that, for the
// log. Otherwise it returns nil.
func (c *conn) exceededLimit() error {
	limits := c.limits.Load()
	switch c.reason() {
	case closedMemory:
		return fmt.Errorf("limits.max_memory is used up; this connection held %d bytes of it", c.held.Bytes())
	case closedWriteTimeout:
		return fmt.Errorf("no reply was read for limits.write_timeout (%v)", limits.WriteTimeout)
	case closedMessageTimeout:
		return fmt.Errorf("a request did not end within limits.message_timeout (%v)", limits.MessageTimeout)
	case closedHandshakeTimeout:
		return fmt.Errorf("a handshake did not end within limits.handshake_timeout (%v)", limits.HandshakeTimeout)
	case closedExpired:
		return errExpired
	}
	return nil
}

// isBusy reports whether a request is unfinished or a reply not sent. Any goroutine may call it.
func (c *conn) isBusy() bool {
	return c.kept.size() > 0 || c.unsent.bytes.Load() != 0 || c.times.messageSince.Load() != 0 || c.unanswered.Load() != 0
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
