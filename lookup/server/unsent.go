package server

import (
	"sync/atomic"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// unsent are the replies that a connection has written and its peer has not read. It belongs to the event loop; other
// goroutines read the atomic fields.
type unsent struct {
	written  int64        // bytes of replies
	accepted int64        // those that the kernel had accepted at the last update
	bytes    atomic.Int64 // that the kernel has not accepted yet
	since    atomic.Int64 // when the kernel last accepted some of them, in monotime; 0 if there are none
}

// flush writes the replies of the turn if they have more than minBytes bytes. The connection fails if that fails.
func (c *conn) flush(minBytes int) {
	t := &c.loop.turn
	if len(t.out) <= minBytes || c.isEnding() {
		return
	}
	c.unsent.written += int64(len(t.out))
	if _, err := c.wire.Write(t.out); err != nil {
		c.fail(errConnGone) // OnClose has already run
	} else if c.updateUnsent() > c.limits.Load().MaxUnsent {
		c.fail(errSlowReader)
	}
	t.out = t.out[:0]
	c.protocol.sent(!c.isEnding())
}

// updateUnsent looks at what is unsent, and returns its bytes.
func (c *conn) updateUnsent() int {
	u, n := c.unsent, c.wire.OutboundBuffered()
	accepted := u.written - int64(n)
	if n > 0 { // a peer that reads slowly frees the kernel's buffer in large steps
		accepted -= sockets.Unacknowledged(c.wire.Fd())
		if c.tls != nil {
			accepted -= c.tls.Unsent()
		}
	}
	if int64(n) == u.bytes.Load() && accepted == u.accepted {
		return n
	}
	switch {
	case n == 0:
		u.since.Store(0)
	case accepted > u.accepted || u.since.Load() == 0:
		u.since.Store(monotime.Now())
	}
	u.accepted = accepted
	u.bytes.Store(int64(n))
	return n
}
