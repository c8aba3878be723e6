package server

import (
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// peerConn is the part of gnet.Conn that the server uses of an open connection.
type peerConn interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written that the kernel has not accepted yet
	Fd() int
	Wake(callback gnet.AsyncCallback) error
	Close() error
}

// unsent are the replies that a connection has written and its peer has not read. It belongs to the event loop; other
// goroutines read the atomic fields.
type unsent struct {
	written  int64        // bytes of replies
	accepted int64        // those that the kernel had accepted at the last update
	bytes    atomic.Int64 // that the kernel has not accepted yet
	since    atomic.Int64 // when the kernel last accepted some of them, in monotime; 0 if there are none
}

// update looks at what is unsent on a wire, which has tls below it or not, and returns its bytes.
func (u *unsent) update(wire peerConn, tls *tlspair.Conn) int {
	n := wire.OutboundBuffered()
	accepted := u.written - int64(n)
	if n > 0 { // a peer that reads slowly frees the kernel's buffer in large steps
		accepted -= sockets.Unacknowledged(wire.Fd())
		if tls != nil {
			accepted -= tls.Unsent()
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
