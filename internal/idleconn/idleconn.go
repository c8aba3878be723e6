// Package idleconn tells whether the peer of an idle connection has ended it.
package idleconn

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Ended reports whether an idle connection cannot be used any more: the peer has closed it, or has sent what nobody asked
// for. It neither waits nor reads, and may be called while another goroutine uses the connection: bytes of a
// reply then count as sent unasked.
func Ended(conn syscall.Conn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var peeked error
	if err := raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, peeked = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}); err != nil {
		return true
	}
	return peeked != unix.EAGAIN && peeked != unix.EINTR
}
