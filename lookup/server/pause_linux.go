package server

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"
)

// readPauser pauses the reading from a connection's socket. The kernel then keeps what the peer
// sends, and slows it down. It belongs to the connection's event loop.
//
// gnet cannot pause reading. It reads whatever its epoll descriptor reports, so that is changed
// here, without gnet. gnet changes it too, to reading and writing when the kernel takes no more
// replies, and to reading when they are sent.
//
// A descriptor without events still reports that the peer has closed, and gnet then drops what
// has not been read. So the descriptor of a paused connection without unsent replies is not
// registered at all.
type readPauser struct {
	conn      gnet.Conn
	epoll, fd int
	removed   bool // from the epoll descriptor
}

// newReadPauser returns the readPauser of a connection, nil if reading cannot be paused.
func newReadPauser(c gnet.Conn) *readPauser {
	epoll := epollOf(c.EventLoop())
	if epoll < 0 {
		return nil
	}
	return &readPauser{conn: c, epoll: epoll, fd: c.Fd()}
}

// pause stops reading until resume.
func (p *readPauser) pause() {
	switch {
	case p == nil:
	case p.conn.OutboundBuffered() > 0:
		p.restore()
		p.control(unix.EPOLL_CTL_MOD, netpoll.WriteEvents)
	case !p.removed:
		p.control(unix.EPOLL_CTL_DEL, 0)
		p.removed = true
	}
}

// restore registers the descriptor again, without events. It must be called before anything is
// written, and before the connection is closed: gnet expects it to be registered.
func (p *readPauser) restore() {
	if p != nil && p.removed {
		p.control(unix.EPOLL_CTL_ADD, 0)
		p.removed = false
	}
}

// resume ends pause.
func (p *readPauser) resume() {
	if p == nil {
		return
	}
	p.restore()
	events := uint32(netpoll.ReadEvents)
	if p.conn.OutboundBuffered() > 0 {
		events |= netpoll.WriteEvents
	}
	p.control(unix.EPOLL_CTL_MOD, events)
}

func (p *readPauser) control(op int, events uint32) {
	_ = unix.EpollCtl(p.epoll, op, p.fd, &unix.EpollEvent{Events: events, Fd: int32(p.fd)}) // fails for want of memory only
}

// unacknowledged returns how many bytes of replies the kernel keeps for the peer of a socket.
func unacknowledged(fd int) int64 {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return int64(n)
}

// epollOf returns the epoll descriptor of an event loop, -1 if it is not found. gnet has no
// method for it.
func epollOf(loop gnet.EventLoop) int {
	v := reflect.ValueOf(loop)
	for _, field := range []string{"poller", "fd"} {
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
			return -1
		}
		v = v.Elem().FieldByName(field)
	}
	if v.Kind() != reflect.Int {
		return -1
	}
	return int(v.Int())
}
