package lookuptest

import "net"

// Pipes is a net.Listener for the server's ends of connections over net.Pipe, in a synctest bubble.
type Pipes chan net.Conn

// Accept implements net.Listener.
func (p Pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (p Pipes) Close() error { close(p); return nil }

// Addr implements net.Listener.
func (p Pipes) Addr() net.Addr { return &net.TCPAddr{} }
