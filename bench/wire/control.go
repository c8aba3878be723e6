package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// DialFunc connects, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Server says how to reach a server.
type Server struct {
	Address   string        // tcp://host:port, tls://host:port or ipc:///path
	Dialect   Dialect       // "": what is no hitline, without handshake and auth
	Pipelined bool          // a ZMTP socket is a DEALER, not a REQ
	Timeout   time.Duration // longest wait for a connection or an answer
	Dial      DialFunc      // nil: net.Dialer; it must know the network "tls" if the address is one

	// Token, if set, returns the token to send, "" for none: in an auth request, or by the PLAIN
	// mechanism of ZMTP. It is a function so that nothing that is printed has the token.
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
	if s.Dial == nil {
		s.Dial = new(net.Dialer).DialContext
	}
	dialCtx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	conn, err := s.Dial(dialCtx, network, address)
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
	token := ""
	if c.server.Token != nil {
		token = c.server.Token()
	}
	if c.server.Dialect == ZMTP {
		if err := c.bounded(ctx, func() error { return handshake(c.conn, c.server.Pipelined, token) }); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
		return nil
	}
	if token == "" {
		return nil
	}
	_, err := c.Done(ctx, "auth", netproto.AppendRequest(nil, nil, netproto.TagAuth, []byte(token)))
	return err
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
	conn, err := newConn(ctx, c.conn, c.server.Timeout)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		err = Lost(err)
	}
	return conn, err
}
