package server

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// ipcPeer is the process at the other end of a unix socket, as it was when it
// connected.
type ipcPeer unix.Ucred

// Network implements net.Addr.
func (*ipcPeer) Network() string { return "ipc" }

// String implements net.Addr.
func (p *ipcPeer) String() string { return fmt.Sprintf("pid=%d uid=%d gid=%d", p.Pid, p.Uid, p.Gid) }

// peerOf returns who is at the other end of a connection.
func peerOf(conn net.Conn) net.Addr {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return conn.RemoteAddr()
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return conn.RemoteAddr()
	}
	peer := conn.RemoteAddr()
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			peer = (*ipcPeer)(cred)
		}
	})
	return peer
}
