//go:build !unix

package client

import (
	"net"
	"syscall"
)

// connCheck would check an idle socket without blocking, but this system cannot. So the
// first call after the server closed an idle connection fails.
type connCheck struct{ raw syscall.RawConn }

// init records whether nc is a socket.
func (c *connCheck) init(nc net.Conn) {
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
}

// idle returns true.
func (c *connCheck) idle() bool { return true }
