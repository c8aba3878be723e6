//go:build !linux

package server

import "net"

// peerOf returns who is at the other end of a connection.
func peerOf(conn net.Conn) net.Addr { return conn.RemoteAddr() }
