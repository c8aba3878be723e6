//go:build !unix

package client

import (
	"net"
	"syscall"
)

// liveness looks at a socket without waiting, where the system can. Here it cannot: the
// first call on a connection that the server has closed meanwhile fails.
type liveness struct{ raw syscall.RawConn }

func (l *liveness) watch(nc net.Conn) {
	if sc, ok := nc.(syscall.Conn); ok {
		l.raw, _ = sc.SyscallConn()
	}
}

// quiet tells whether the socket is open and has nothing to read.
func (l *liveness) quiet() bool { return true }
