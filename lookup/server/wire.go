package server

import "github.com/panjf2000/gnet/v2"

// peerConn is the part of gnet.Conn that the server uses of an open connection.
type peerConn interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int // bytes written that the kernel has not accepted yet
	Fd() int
	Wake(callback gnet.AsyncCallback) error
	Close() error
}
