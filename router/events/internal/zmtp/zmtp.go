// Package zmtp is the side of ZMTP (RFC 23 and 37) that a subscriber needs: SUB and DEALER
// sockets over one connection, under the NULL mechanism, blocking, with deadlines. It starts no
// goroutine. The frames, greetings and commands are those of package netproto.
//
// A length is a claim of the peer. Memory is allocated for the bytes that arrived, in steps.
package zmtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/netproto"
)

// Socket types.
const (
	SUB    = "SUB"
	DEALER = "DEALER"
)

var (
	// ErrNoMessage is the error of ReceiveWithin if no message came in time. The connection is
	// still of use. After any other error only Close is left.
	ErrNoMessage = errors.New("no message in time")
	// ErrTimeout: the peer was silent, slow, or did not read, for longer than Config.Timeout.
	ErrTimeout = errors.New("timed out")
	// ErrProtocol: the peer does not speak ZMTP as a fitting peer of ours does, or it exceeds a bound.
	ErrProtocol = errors.New("protocol error")
	// ErrEndpoint: an endpoint cannot be parsed, or is of a transport that is not served.
	ErrEndpoint = errors.New("bad endpoint")
)

// protocolError returns an ErrProtocol with what is wrong.
func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrProtocol, fmt.Errorf(format, args...))
}

// Config bounds a Conn. All fields are needed.
type Config struct {
	SocketType string // SUB or DEALER
	// MaxMessage is how many bytes a message may have, all its frames together.
	MaxMessage int
	// Timeout bounds the handshake, each write, and how long the peer may be silent. After a
	// third of it a PING is sent, which the peer answers. A peer of ZMTP 3.0 has no PING and
	// may be silent for ever. A message must arrive within Timeout, too, one of more than stepBytes each stepBytes
	// of it.
	Timeout time.Duration
	// Reserve, if set, is called once SmallMessage bytes of a message that is larger have arrived, with the bytes that
	// are announced. It may wait; an error ends the connection. Twice that is what the message takes while it
	// arrives, and at most that until the next Receive. A message of several large frames calls it for each of them,
	// with all bytes so far and those of the frame.
	Reserve func(bytes int) error
	// CPU, if set, is held while the caller computes, and not while the connection waits for its peer. A Receive fails
	// with ErrTimeout once CPU is closed, which it is when it waits for too long.
	CPU *cpushare.Claim
}

func (c *Config) release() {
	if c.CPU != nil {
		c.CPU.Release()
	}
}

func (c *Config) acquire() error {
	if c.CPU != nil && !c.CPU.Acquire() {
		return fmt.Errorf("%w: the processors are busy with other sources", ErrTimeout)
	}
	return nil
}

// SmallMessage is up to how many bytes a message takes nothing of Config.Reserve: the buffer for it is that of the
// connection.
const SmallMessage = 64 << 10

// readBuffer is the size of the buffer for reading. Many small messages come with one system call,
// and a command fits in it.
const readBuffer = 64 << 10

// Conn is one connection after its handshake. One goroutine may receive while another sends.
type Conn struct {
	conn net.Conn
	cfg  Config
	peer string // for errors
	// minor is that of the peer's version 3.x; 0 during the handshake.
	minor byte

	// Of Receive:
	in     input
	buf    *bufio.Reader     // reads from in
	idle   idleRate          // of what is no message
	body   []byte            // frames of the last message, joined
	frames [maxFrames][]byte // parts of body

	writing  sync.Mutex
	writeErr error // of the first write that failed; guarded by writing
}

// Dial connects to a peer, "tcp" or "unix", and does the handshake.
func Dial(ctx context.Context, network, address string, cfg Config) (*Conn, error) {
	d := net.Dialer{Timeout: cfg.Timeout}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
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
	c.in.c = c
	c.buf = bufio.NewReaderSize(&c.in, readBuffer)
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
	return c.write(netproto.AppendCommand(nil, "SUBSCRIBE", prefix))
}

// Send sends one message. After an error the connection is of no more use.
func (c *Conn) Send(frames ...[]byte) error {
	var b []byte
	for i, f := range frames {
		b = netproto.AppendFrame(b, f, i < len(frames)-1)
	}
	return c.write(b)
}

// write writes b. A write that fails leaves the peer with a part of a frame, so no other is tried.
func (c *Conn) write(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.writeErr != nil {
		return c.writeErr
	}
	err := c.conn.SetWriteDeadline(time.Now().Add(c.cfg.Timeout))
	if err == nil {
		c.cfg.release() // the peer may not read; the next Read acquires it
		_, err = c.conn.Write(b)
	}
	switch {
	case isTimeout(err):
		c.writeErr = fmt.Errorf("%w: the peer did not read for %v", ErrTimeout, c.cfg.Timeout)
	case err != nil:
		c.writeErr = socketError("writing", err)
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

// socketError wraps an error of the socket, without the addresses that net adds.
func socketError(doing string, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
