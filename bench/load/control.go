package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// dialFunc connects, as net.Dialer.DialContext does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func dialNet(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// control is a connection that is not measured (yet): it asks one thing after the
// other. Not safe for concurrent use.
type control struct {
	conn     net.Conn
	envelope []byte // in front of every request and its reply
	timeout  time.Duration
	buffer   []byte
}

// dialControl connects, shakes hands where the dialect has that, and sends the token if there
// is one. The caller closes the connection.
func dialControl(ctx context.Context, o Options) (*control, error) {
	network, address, err := api.SplitAddress(o.Connect)
	if err != nil {
		return nil, fmt.Errorf("%w: address %w", measure.ErrOptions, err)
	}
	ctx, cancel := o.deadlineIn(ctx)
	defer cancel()
	conn, err := o.dial(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	c := &control{conn: conn, envelope: o.envelope(), timeout: o.Timeout}
	if o.Dialect == ZMTP {
		_ = conn.SetDeadline(time.Now().Add(o.Timeout))
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		err := handshake(conn, o.Pipeline > 1, o.token())
		if !stop() && err == nil { // its deadline may still be set
			err = lost(context.Cause(ctx))
		}
		if err != nil {
			conn.Close()
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
		return c, nil
	}
	if token := o.token(); token != "" {
		if _, err := c.done(ctx, "auth", netproto.AppendRequest(nil, nil, netproto.TagAuth, []byte(token))); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return c, nil
}

// ask sends a request whose bytes are the given ones, joined, and returns the
// frames of its reply, valid until the next call.
func (c *control) ask(ctx context.Context, request ...[]byte) ([][]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = c.conn.SetDeadline(time.Now().Add(c.timeout))
	if ctx.Err() != nil { // the deadline may have been set after that of stop
		return nil, context.Cause(ctx)
	}
	buffers := net.Buffers(request)
	_, err := buffers.WriteTo(c.conn)
	if err == nil {
		var frames [][]byte
		if frames, err = c.read(); err == nil {
			return frames, nil
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, measure.ErrAnswer) {
		return nil, err
	}
	return nil, lost(err)
}

// read reads one reply, to its last byte and no further if the server sends
// nothing unasked.
func (c *control) read() ([][]byte, error) {
	c.buffer = c.buffer[:0]
	chunk := make([]byte, 4096)
	for {
		n, err := c.conn.Read(chunk)
		c.buffer = append(c.buffer, chunk[:n]...)
		frames, used, parsed := netproto.ParseMessage(c.buffer, replyLimits, nil)
		switch {
		case parsed == nil && used < len(c.buffer):
			return nil, fmt.Errorf("%w: bytes that were not asked for: %x", measure.ErrAnswer, clipped(c.buffer[used:]))
		case parsed == nil:
			return unwrapped(frames, len(c.envelope) > 0)
		case !errors.Is(parsed, netproto.ErrShort):
			return nil, fmt.Errorf("%w: %x: %w", measure.ErrAnswer, clipped(c.buffer), parsed)
		case errors.Is(err, io.EOF) && len(c.buffer) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
	}
}

// replyLimits are far above any reply that is asked for here.
var replyLimits = netproto.Limits{MaxMessage: 1 << 20}

// unwrapped takes the delimiter off a reply.
func unwrapped(frames [][]byte, enveloped bool) ([][]byte, error) {
	if !enveloped {
		return frames, nil
	}
	if len(frames) < 2 || len(frames[0]) > 0 {
		return nil, fmt.Errorf("%w: no empty frame in front of it: %x", measure.ErrAnswer, clipped(frames[0]))
	}
	return frames[1:], nil
}

func clipped(b []byte) []byte { return b[:min(len(b), 64)] }

// done asks for something whose answer is 01, and returns the frame behind it, if
// there is one.
func (c *control) done(ctx context.Context, what string, request ...[]byte) ([]byte, error) {
	frames, err := c.ask(ctx, request...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case len(frames[0]) == 1 && frames[0][0] == netproto.StatusDone && len(frames) == 1:
		return nil, nil
	case len(frames[0]) == 1 && frames[0][0] == netproto.StatusDone:
		return frames[1], nil
	}
	return nil, fmt.Errorf("%w: %s was answered %s", measure.ErrAnswer, what, describe(frames))
}

// tailHit returns the hit of a reply with tail boundaries: those of pools from vLLM 0.29.0 on.
func tailHit(frames [][]byte) (tokens uint32, ok bool) {
	numBoundaries := 0
	ok = len(frames) == 1 && netproto.ParseTailBoundaries(frames[0], func(_, _ uint32) { numBoundaries++ }) && numBoundaries > 0
	if !ok {
		return 0, false
	}
	return uint32(netproto.ParseInt(frames[0][:4])), true
}

// describe says what a reply is.
func describe(frames [][]byte) string {
	if len(frames[0]) == 1 && frames[0][0] == netproto.StatusFailed {
		if len(frames) > 1 {
			return fmt.Sprintf("a refusal (00): %.200q", frames[1])
		}
		return "a refusal (00)"
	}
	if len(frames) > 1 {
		return fmt.Sprintf("%d frames, first %x", len(frames), clipped(frames[0]))
	}
	return fmt.Sprintf("a frame of %d bytes, %x", len(frames[0]), clipped(frames[0]))
}

// pingPayload is what pings carry.
var pingPayload = []byte("hitbench")

// ping sees whether the server answers on the connection.
func (c *control) ping(ctx context.Context) error {
	echo, err := c.done(ctx, "ping", netproto.AppendRequest(nil, c.envelope, netproto.TagPing, pingPayload))
	if err == nil && string(echo) != string(pingPayload) {
		err = fmt.Errorf("%w: a ping came back as %q", measure.ErrAnswer, clipped(echo))
	}
	return err
}
