//go:build linux

package wire

import (
	"fmt"
	"sync"

	"github.com/hitline/hitline/bench/measure"
)

// Conn is a Socket that ends with a context. Each call may take as long as the timeout that Dial
// was given.
type Conn struct {
	Socket
	vector [2]Vector

	stop   func() bool // watching the context
	mu     sync.Mutex  // guards what follows
	closed bool
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
func (c *Conn) Close() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.Socket.Close()
	}
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
