package wire

import (
	"context"
	"net"
	"time"
)

// Conn is a Socket as a net.Conn, for a client that takes one. It has the time that
// Dial was given for each call and knows no other deadline.
type Conn struct {
	Socket
	local, remote net.Addr
}

// DialConn connects like net.Dialer.DialContext.
func DialConn(ctx context.Context, network, address string, timeout time.Duration) (*Conn, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &Conn{local: conn.LocalAddr(), remote: conn.RemoteAddr()}
	if c.Socket, err = Take(conn); err != nil {
		return nil, err
	}
	if err := c.limit(timeout); err != nil {
		c.Socket.Close()
		return nil, err
	}
	return c, nil
}

// Write writes all of b.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.Socket.Write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close closes the socket.
func (c *Conn) Close() error {
	c.Socket.Close()
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline does nothing.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
