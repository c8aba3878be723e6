//go:build linux

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// ErrAgain says that nothing could be read or written for now, of a socket that does not
// wait for its whole bound.
var ErrAgain = errors.New("nothing for now")

// Lost marks an error of a connection as [measure.ErrLost], unless it is one already, is
// nil, or is [measure.ErrAnswer].
func Lost(err error) error {
	switch {
	case err == nil || errors.Is(err, measure.ErrAnswer) || errors.Is(err, measure.ErrLost):
		return err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errLate
	}
	return fmt.Errorf("%w: %w", measure.ErrLost, err)
}

var (
	errClosed = errors.New("closed by the server")
	errLate   = errors.New("no answer in time")
)

// Server says how to reach a server.
type Server struct {
	Address string        // tcp://host:port or ipc:///path
	Dialect Dialect       // "": what is no hitline, without handshake and auth
	Timeout time.Duration // longest wait for a connection or an answer

	// Token, if set, returns the token to send in an auth request, "" for none. It is a function so
	// that nothing that is printed has the token. The dialect is then Raw.
	Token func() string
}

// Control is a connection that is not measured (yet): it asks one thing after the
// other. Not safe for concurrent use.
type Control struct {
	server Server
	conn   net.Conn
	buffer []byte
}

// Dial connects, shakes hands where the dialect has that, and sends the token if there
// is one. The caller closes the connection, or takes its socket over. An error wraps one
// of those of package measure, or is the cause of ctx being done.
func Dial(ctx context.Context, s Server) (*Control, error) {
	network, address, err := api.SplitAddress(s.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: address %w", measure.ErrOptions, err)
	}
	if network == "tls" {
		return nil, measure.BadOptions("%s: only tcp:// and ipc:// addresses are measured", s.Address)
	}
	dialCtx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(dialCtx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	c := &Control{server: s, conn: conn}
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// greet makes the handshake or sends the token.
func (c *Control) greet(ctx context.Context) error {
	if c.server.Dialect == ZMTP {
		if err := c.bounded(ctx, func() error { return handshake(c.conn) }); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
		return nil
	}
	if c.server.Token == nil || c.server.Token() == "" {
		return nil
	}
	_, err := c.Done(ctx, "auth", netproto.AppendRequest(nil, nil, netproto.TagAuth, []byte(c.server.Token())))
	return err
}

// handshake makes a ZMTP connection of conn, as a REQ socket.
func handshake(conn io.ReadWriter) error {
	const ready = "\x0bSocket-Type\x00\x00\x00\x03REQ\x08Identity\x00\x00\x00\x00"
	if _, err := conn.Write(netproto.AppendCommand([]byte(netproto.Greeting), netproto.CommandReady, ready)); err != nil {
		return err
	}
	var theirs [netproto.GreetingLen + 2]byte // and the head of a short command
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return err
	}
	if _, err := netproto.CheckGreeting(theirs[:netproto.GreetingLen]); err != nil {
		return fmt.Errorf("%w: %w: %x", measure.ErrAnswer, err, theirs)
	}
	command := make([]byte, theirs[netproto.GreetingLen+1])
	if _, err := io.ReadFull(conn, command); err != nil {
		return err
	}
	if name, _, ok := netproto.SplitCommand(command); !ok || string(name) != netproto.CommandReady {
		return fmt.Errorf("%w: no %s, but %q", measure.ErrAnswer, netproto.CommandReady, command)
	}
	return nil
}

// bounded calls ask, which ends with ctx and after the timeout.
func (c *Control) bounded(ctx context.Context, ask func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = c.conn.SetDeadline(time.Now().Add(c.server.Timeout))
	if ctx.Err() != nil { // the deadline may have been set after that of stop
		return context.Cause(ctx)
	}
	if err := ask(); err == nil || ctx.Err() == nil {
		return Lost(err)
	}
	return context.Cause(ctx)
}

// Ask sends a request whose bytes are the given ones, joined, and returns the
// frames of its reply without the envelope, valid until the next call.
func (c *Control) Ask(ctx context.Context, request ...[]byte) (frames [][]byte, err error) {
	err = c.bounded(ctx, func() error {
		buffers := net.Buffers(request)
		if _, err := buffers.WriteTo(c.conn); err != nil {
			return err
		}
		frames, err = c.server.Dialect.readReply(c.conn, &c.buffer)
		return err
	})
	return frames, err
}

// Done asks for something whose answer is 01, and returns the frame behind it, if
// there is one.
func (c *Control) Done(ctx context.Context, what string, request ...[]byte) ([]byte, error) {
	frames, err := c.Ask(ctx, request...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case len(frames[0]) != 1 || frames[0][0] != netproto.StatusDone:
		return nil, fmt.Errorf("%w: %s was answered %s", measure.ErrAnswer, what, Describe(frames))
	case len(frames) == 1:
		return nil, nil
	}
	return frames[1], nil
}

// PingPayload is what pings carry.
var PingPayload = []byte("hitbench")

// Ping sees whether the server answers on the connection.
func (c *Control) Ping(ctx context.Context) error {
	echo, err := c.Done(ctx, "ping", netproto.AppendRequest(nil, c.server.Dialect.Envelope(), netproto.TagPing, PingPayload))
	if err == nil && string(echo) != string(PingPayload) {
		err = fmt.Errorf("%w: a ping came back as %q", measure.ErrAnswer, Clip(echo))
	}
	return err
}

// Close closes the connection.
func (c *Control) Close() { _ = c.conn.Close() } // nobody waits on it

// Socket takes the socket over, even on an error. Its calls wait as wait says.
func (c *Control) Socket(wait Wait) (Socket, error) {
	s, err := Take(c.conn, wait)
	return s, Lost(err)
}

// Conn takes the socket over, even on an error. A call on it ends with ctx, and after
// the timeout.
func (c *Control) Conn(ctx context.Context) (*Conn, error) {
	conn := &Conn{}
	var err error
	if conn.Socket, err = Take(c.conn, Wait{Bound: c.server.Timeout}); err != nil {
		return nil, Lost(err)
	}
	conn.stop = context.AfterFunc(ctx, conn.interrupt)
	return conn, nil
}
