// Package zmtp is the side of ZMTP (RFC 23 and 37) that a subscriber needs: SUB and DEALER
// sockets over one connection, under the NULL mechanism, blocking, with deadlines. It starts no
// goroutine.
//
// # Bytes
//
// Both sides send a greeting of 64 bytes, then the command READY with their socket type, then
// messages and commands:
//
//	greeting  FF, 8 bytes of padding, 7F, major, minor, mechanism (20), as-server, filler (31)
//	frame     flags (MORE 1, LONG 2, COMMAND 4), length (1 byte, or 8 if LONG), body
//	message   one frame or more; all but the last have MORE
//	command   one frame: length of the name (1 byte), name, data
//
// A length is a claim of the peer. Memory is allocated for the bytes that arrived, in steps.
package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Socket types.
const (
	SUB    = "SUB"
	DEALER = "DEALER"
)

// Config bounds a Conn. All fields are needed.
type Config struct {
	SocketType string // SUB or DEALER
	// MaxMessage is how many bytes a message may have, all its frames together.
	MaxMessage int
	// Timeout bounds the handshake, each write, and how long the peer may be silent. After a
	// third of it a PING is sent, which the peer answers. A peer of ZMTP 3.0 has no PING and
	// may be silent for ever. Each MiB of a message must arrive within Timeout, too.
	Timeout time.Duration
}

// Conn is one connection after its handshake. One goroutine may receive while another sends.
type Conn struct {
	conn net.Conn
	cfg  Config
	peer string // for errors
	// minor is that of the peer's version 3.x.
	minor byte

	// Of Receive:
	in       input
	borrowed int               // bytes of the message that was returned last
	frames   [maxFrames][]byte // of that message
	silent   time.Duration     // waited since the peer's last bytes
	pinged   bool              // since the peer's last bytes
	readErr  error

	writing  sync.Mutex
	out      []byte // of the last write; guarded by writing
	writeErr error  // of the first write that failed; guarded by writing
}

// Dial connects to a peer, "tcp" or "unix", and does the handshake.
func Dial(ctx context.Context, network, address string, cfg Config) (*Conn, error) {
	d := net.Dialer{Timeout: cfg.Timeout}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("events: zmtp: %w", err)
	}
	return open(ctx, c, address, cfg)
}

// Accept does the handshake on a connection of a listener. It closes c if it fails.
func Accept(ctx context.Context, c net.Conn, cfg Config) (*Conn, error) {
	peer := c.RemoteAddr().String()
	if c.RemoteAddr().Network() == "unix" {
		peer = "a peer of " + c.LocalAddr().String() // its own address has no name
	}
	return open(ctx, c, peer, cfg)
}

// open does the handshake. It closes conn if it fails, or if ctx ends before.
func open(ctx context.Context, conn net.Conn, peer string, cfg Config) (*Conn, error) {
	c := &Conn{conn: conn, cfg: cfg, peer: peer}
	c.in.init()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err := c.handshake()
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w (handshake with %s)", err, peer)
	}
	return c, nil
}

// Subscribe asks the peer, a PUB or XPUB, for the topics that begin with prefix. It takes
// effect when the peer has read it, which is not acknowledged.
func (c *Conn) Subscribe(prefix string) error {
	if c.minor == 0 {
		return c.Send(append([]byte{1}, prefix...))
	}
	return c.write(func(b []byte) []byte { return appendCommand(b, commandSubscribe, prefix) })
}

// Send sends one message. After an error the connection is of no more use.
func (c *Conn) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return errors.New("events: zmtp: a message without frames")
	}
	return c.write(func(b []byte) []byte {
		for i, f := range frames {
			b = appendFrame(b, f, i < len(frames)-1)
		}
		return b
	})
}

// maxKeptOut bounds the buffer that is kept for the next write. Ours are requests and commands.
const maxKeptOut = 4 << 10

// write writes what fill appends. A write that fails leaves the peer with a part of a frame,
// so no other is tried.
func (c *Conn) write(fill func([]byte) []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.writeErr != nil {
		return c.writeErr
	}
	b := fill(c.out[:0])
	if cap(b) <= maxKeptOut {
		c.out = b
	}
	err := c.conn.SetWriteDeadline(time.Now().Add(c.cfg.Timeout))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err != nil {
		c.writeErr = c.ioError("writing", err)
	}
	return c.writeErr
}

// Close closes the connection; a Receive that waits returns an error. It may be called more
// than once, by any goroutine.
func (c *Conn) Close() error {
	err := c.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
