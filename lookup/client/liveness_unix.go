//go:build unix

package client

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// liveness looks at a socket without waiting.
type liveness struct {
	raw  syscall.RawConn
	look func(fd uintptr)
	ok   bool
}

func (l *liveness) watch(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	l.raw = raw
	l.look = func(fd uintptr) {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		l.ok = err == unix.EAGAIN || err == unix.EINTR
	}
}

// quiet tells whether the socket is open and has nothing to read. What is no
// socket passes.
func (l *liveness) quiet() bool {
	if l.raw == nil {
		return true
	}
	return l.raw.Control(l.look) == nil && l.ok // Read would mind a deadline that has passed
}
