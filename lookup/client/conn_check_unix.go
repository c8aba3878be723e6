//go:build unix

package client

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// connCheck checks an idle connection without blocking, by the socket below it.
type connCheck struct {
	raw  syscall.RawConn // nil if there is no socket
	peek func(fd uintptr)
	ok   bool // the result of the last peek
}

// init prepares the check of nc. peek is made once, so that idle does not allocate.
func (c *connCheck) init(nc net.Conn) {
	sc, ok := socketOf(nc).(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	c.raw = raw
	c.peek = func(fd uintptr) {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		c.ok = err == unix.EAGAIN || err == unix.EINTR
	}
}

// idle reports whether the socket is open and has nothing to read. It returns true if
// there is no socket. It uses Control, as Read would fail at a passed deadline.
func (c *connCheck) idle() bool {
	if c.raw == nil {
		return true
	}
	return c.raw.Control(c.peek) == nil && c.ok
}
