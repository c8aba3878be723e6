//go:build !unix

package client

import (
	"net"
	"syscall"
)

// connCheck would check an idle socket without blocking, but this system cannot. So the
// first call after the server closed an idle connection fails.
type connCheck struct{ raw syscall.RawConn }

// init records the socket below nc, if there is one.
func (c *connCheck) init(nc net.Conn) {
	if sc, ok := socketOf(nc).(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
}

// idle returns true.
func (c *connCheck) idle() bool { return true }
