package client

import (
	"context"
	"net"
	"time"

	"github.com/hitline/hitline/netproto"
)

// introduce sends the token and the description of the pool on a new connection, those that there
// are, in one write, and reads the replies. deadline bounds it as ctx does, unless it is zero.
func (d *dialer) introduce(ctx context.Context, nc net.Conn, deadline time.Time, token string) error {
	if token == "" && d.description == nil {
		return nil
	}
	c := newConn(nc)
	c.limits.MaxMessage = maxPoolReply
	err := c.beginExchange(ctx, deadline)
	if err == nil {
		err = d.exchangeFirst(c, token)
	}
	c.endExchange()
	switch {
	case err != nil:
		return err
	case c.unusable:
		return ctx.Err()
	}
	return nc.SetDeadline(time.Time{})
}

// exchangeFirst makes the requests of introduce. The first that is refused is its error.
func (d *dialer) exchangeFirst(c *conn, token string) error {
	var handlers []func(frames [][]byte) error
	add := func(tag netproto.Tag, blob []byte, handle func([][]byte) error) {
		r := request{tag: tag, blob: blob}
		c.head = append(r.appendHead(c.head, nil), blob...)
		handlers = append(handlers, handle)
	}
	if token != "" {
		add(netproto.TagAuth, []byte(token), readStatus)
	}
	if d.description != nil {
		add(netproto.TagPool, d.description, d.readPool)
	}
	c.parts = append(c.parts[:0], c.head)
	if err := c.write(); err != nil {
		return err
	}
	at := 0
	for _, handle := range handlers {
		end, err := c.readMessage(at)
		if err != nil {
			return err
		}
		if err := handle(c.frames); err != nil {
			return err
		}
		at = end
	}
	return c.checkEnd(at)
}
