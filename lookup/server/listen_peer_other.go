//go:build !linux

package server

import "net"

// peerOf returns the address of a connection's peer.
func peerOf(conn net.Conn) net.Addr { return conn.RemoteAddr() }
