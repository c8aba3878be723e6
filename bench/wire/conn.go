package wire

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Conn is a Socket that ends with a context. It is a net.Conn, for a client that takes
// one, which has the time that Dial was given for each call and knows no other deadline.
type Conn struct {
	Socket
	local, remote net.Addr
	vector        [2]Vector

	stop   func() bool // watching the context
	mu     sync.Mutex  // guards what follows
	closed bool
}

// Dialer returns a function like net.Dialer.DialContext whose connections block in the
// kernel for at most timeout a call, and do not end with the context of the dialling.
func Dialer(timeout time.Duration) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c, err := newConn(context.WithoutCancel(ctx), conn, timeout)
		if err != nil {
			return nil, err // no nil pointer in an interface
		}
		return c, nil
	}
}

// interrupt ends a call that is under way on the socket.
func (c *Conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed { // else its number may be another file's by now
		c.Shutdown()
	}
}

// Close closes the socket, once.
func (c *Conn) Close() error {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.Socket.Close()
	}
	return nil
}

// Send writes two buffers, the second of which may be empty, with one call.
func (c *Conn) Send(a, b []byte) error {
	v := append(c.vector[:0], VectorOf(a))
	if len(b) > 0 {
		v = append(v, VectorOf(b))
	}
	return c.WriteAll(v)
}

// ReadReply reads a reply of the given size into b, which has room for more, and
// returns it. The reply begins with prefix: waiting for the rest of a refusal could be
// for ever.
func (c *Conn) ReadReply(b []byte, size int, prefix []byte) ([]byte, error) {
	have := 0
	for have < size {
		n, err := c.Read(b[have:])
		if err != nil {
			return nil, err
		}
		have += n
		if !StartsLike(b[:have], prefix) {
			return nil, fmt.Errorf("%w: it begins with %x", measure.ErrAnswer, b[:min(have, len(prefix)+64)])
		}
	}
	if have > size {
		return nil, fmt.Errorf("%w: %x, of which %d bytes are one", measure.ErrAnswer, b[max(0, size-8):have], size)
	}
	return b[:size], nil
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
