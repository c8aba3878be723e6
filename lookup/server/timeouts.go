package server

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/netproto"
)

// Timeouts of a connection: what they go by, and which it has passed.

// times are what the timeouts of a connection go by. The event loop sets them at the end of a turn, other goroutines
// read them. Times are in monotime, 0 for none.
type times struct {
	lastActive     atomic.Int64 // when the peer last sent, or got an answer of a job: IdleTimeout counts from it
	messageSince   atomic.Int64 // when the message that is being received began
	handshakeSince atomic.Int64 // when the unfinished ZMTP handshake began
	ttl            atomic.Int64 // of the ZMTP peer's heartbeat, in nanoseconds
	zmtp           atomic.Bool  // its peer speaks ZMTP
	expires        atomic.Int64 // when its authorization does, in Unix microseconds, as nanoseconds end in 2262; 0: never
}

// update sets the times at the end of a turn. messageReadAt is of the message that is being received.
func (t *times) update(reader *netproto.Reader, messageReadAt int64) {
	since, handshake := int64(0), int64(0)
	if reader.InMessage() {
		since = messageReadAt
	}
	if reader.InHandshake() {
		handshake = cmp.Or(t.handshakeSince.Load(), t.lastActive.Load())
	}
	setIfOther(&t.messageSince, since)
	setIfOther(&t.handshakeSince, handshake)
	setIfOther(&t.ttl, int64(reader.TTL()))
	if reader.ZMTP() && !t.zmtp.Load() {
		t.zmtp.Store(true)
	}
}

// setIfOther sets a value that others read, if it has changed: a store costs more than a load.
func setIfOther(v *atomic.Int64, to int64) {
	if v.Load() != to {
		v.Store(to)
	}
}

// expiredAt reports whether the authorization has expired at a time.
func (t *times) expiredAt(now time.Time) bool {
	expires := t.expires.Load()
	return expires != 0 && now.UnixMicro() >= expires
}

// overdue returns the timeout that a connection has passed, notClosed if it has passed none. Any goroutine may call it.
func (c *conn) overdue(now int64) closeReason {
	t, limits := c.times, c.limits.Load()
	if since := c.unsent.since.Load(); since != 0 && now-since > int64(limits.WriteTimeout) {
		return closedWriteTimeout
	}
	if t.expiredAt(time.Now()) {
		return closedExpired
	}
	if c.kept.Size() > 0 { // the server is late, not its peer
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
