// Package halfclosed writes to peers that have sent a FIN and may still read. Who read from such a connection closes its
// descriptor, so a Conn has a duplicate.
package halfclosed

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// Conn is a connection whose peer may still read. One goroutine writes, one waits for a reset.
type Conn struct {
	socket  net.Conn
	raw     syscall.RawConn
	fd      int           // of socket
	written chan struct{} // holds an element if there is something to write; closed at the end

	mu      sync.Mutex
	pending []byte // replies that are not written yet
	writing int    // bytes that are written now
	err     error  // why no more can be written
}

// Open returns the connection of a descriptor, which it closes: the connection has one of its own.
func Open(fd int) (*Conn, error) {
	socket, err := sockets.ConnOf(fd)
	if err != nil {
		return nil, err
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	c := &Conn{socket: socket, raw: raw, written: make(chan struct{}, 1)}
	_ = raw.Control(func(fd uintptr) { c.fd = int(fd) })
	return c, nil
}

// Start starts two goroutines of a group, which End ends. One calls written when replies were written or cannot be, the
// other calls broken, when the peer reads no more or the timeout is over.
func (c *Conn) Start(group *sync.WaitGroup, timeout time.Duration, written, broken func()) {
	_ = c.socket.SetDeadline(time.Now().Add(timeout))
	group.Go(func() { c.write(written) })
	group.Go(func() {
		_ = c.raw.Read(func(fd uintptr) bool { return sockets.IsBroken(int(fd)) }) // it fails after the deadline
		broken()
	})
}

// Write has bytes written. It does not wait.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.pending = append(c.pending, b...)
	select {
	case c.written <- struct{}{}:
	default:
	}
	return len(b), nil
}

// write writes replies until the end, and tells when it has written some.
func (c *Conn) write(written func()) {
	for range c.written {
		c.mu.Lock()
		b := c.pending
		c.pending, c.writing = nil, len(b)
		c.mu.Unlock()
		_, err := c.socket.Write(b)
		c.mu.Lock()
		c.writing, c.err = 0, err
		c.mu.Unlock()
		written()
	}
}

// OutboundBuffered returns how many bytes are not written yet.
func (c *Conn) OutboundBuffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) + c.writing
}

// Fd returns its descriptor, which is valid until End.
func (c *Conn) Fd() int { return c.fd }

// End closes the connection. It is called once, and Write not after it.
func (c *Conn) End() {
	close(c.written)
	_ = c.socket.Close()
}
