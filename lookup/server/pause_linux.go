package server

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"
)

// readPauser returns a function that pauses (true) or resumes the reading from a connection's
// socket. The function is called on the connection's event loop. While reading is paused the
// kernel keeps what the peer sends, and slows it down. readPauser returns nil if reading cannot be
// paused.
//
// gnet cannot pause reading. It reads whatever its epoll descriptor reports, so the events of
// that descriptor are changed here, without gnet. gnet changes them too, to reading and
// writing when the kernel takes no more replies, and to reading when they are sent.
func readPauser(c gnet.Conn) func(paused bool) {
	epoll := epollOf(c.EventLoop())
	if epoll < 0 {
		return nil
	}
	fd := c.Fd()
	return func(paused bool) {
		events := uint32(netpoll.ReadEvents)
		if paused {
			events = 0
		}
		if c.OutboundBuffered() > 0 {
			events |= netpoll.WriteEvents
		}
		_ = unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}) // it is registered
	}
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
