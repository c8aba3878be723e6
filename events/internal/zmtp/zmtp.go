// Package zmtp is the side of ZMTP (RFC 23 and 37) that a subscriber needs: SUB and DEALER
// sockets over one connection, under the NULL mechanism, blocking, with deadlines.
package zmtp

import (
	"context"
	"net"
	"time"
)

// Socket types.
const (
	SUB    = "SUB"
	DEALER = "DEALER"
)

// Config bounds a Conn.
type Config struct {
	SocketType string // SUB or DEALER
	// MaxMessage is how many bytes a message may have, all its frames together.
	MaxMessage int
	// Timeout bounds the handshake, each write, and how long the peer may be silent: it is
	// asked with a PING in time.
	Timeout time.Duration
}

// Conn is one connection after its handshake. One goroutine may receive while another sends.
type Conn struct{}

// Dial connects to a peer, "tcp" or "unix", and does the handshake.
func Dial(ctx context.Context, network, address string, cfg Config) (*Conn, error) { return nil, nil }

// Accept does the handshake on a connection of a listener. It closes c if it fails.
func Accept(ctx context.Context, c net.Conn, cfg Config) (*Conn, error) { return nil, nil }

// Subscribe asks the peer, a PUB or XPUB, for the topics that begin with prefix.
func (c *Conn) Subscribe(prefix string) error { return nil }

// Send sends one message.
func (c *Conn) Send(frames ...[]byte) error { return nil }

// Receive waits for the next message. Its frames are borrowed until the next Receive. At most
// maxFrames are accepted.
func (c *Conn) Receive() (frames [][]byte, err error) { return nil, nil }

// Close closes the connection; a Receive that waits returns an error.
func (c *Conn) Close() error { return nil }
