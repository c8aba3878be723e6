package server

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// ipcPeer identifies the peer process of a unix socket, as of the time when it
// connected.
type ipcPeer unix.Ucred

// Network implements net.Addr.
func (*ipcPeer) Network() string { return "ipc" }

// String implements net.Addr.
func (p *ipcPeer) String() string { return fmt.Sprintf("pid=%d uid=%d gid=%d", p.Pid, p.Uid, p.Gid) }

// peerOf returns the address of a connection's peer: on a unix socket its process.
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
