package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// ErrPoolDiffers says that the server has the described pool otherwise: see WithPool. It comes
// together with ErrRefused. Its text names each field with both values.
var ErrPoolDiffers = errors.New("client: the pool differs")

// WithPool makes the client describe its engine's pool on each connection before anything
// else. All calls then are about that pool. If the server has it otherwise calls fail with
// ErrPoolDiffers, and if it refuses it for another reason with ErrRefused. name, if not empty,
// is that of the pool at the server. docs/protocol.md has the rules.
func WithPool(name string, pool coordinator.Pool) Option {
	return func(c *config) {
		c.description, c.descriptionErr = json.Marshal(struct {
			Name string `json:"name,omitempty"`
			coordinator.Pool
		}{name, pool})
	}
}

// WithPoolName is WithPool for a pool that the server has by this name.
func WithPoolName(name string) Option {
	return func(c *config) {
		c.description, c.descriptionErr = json.Marshal(map[string]string{"name": name})
	}
}

// Pool returns the pool as the server has told it on the last connection. ok is false if none
// was made, or without WithPool and WithPoolName.
func (c *Client) Pool() (pool api.Pool, ok bool) {
	if p := c.dialer.pool.Load(); p != nil {
		return *p, true
	}
	return api.Pool{}, false
}

// describePool sends the description on a new connection and waits for the reply. deadline
// bounds it as ctx does, unless it is zero.
func (d *dialer) describePool(ctx context.Context, nc net.Conn, deadline time.Time) error {
	c := newConn(nc)
	c.limits.MaxMessage = maxPoolReply
	err := c.beginExchange(ctx, deadline)
	if err == nil {
		err = c.exchange(&request{tag: netproto.TagPool, blob: d.description})
	}
	frames := c.frames
	c.endExchange()
	switch {
	case err != nil:
		return err
	case c.unusable:
		return ctx.Err()
	}
	if err := poolRefusal(frames); err != nil {
		return err
	}
	var pool api.Pool
	if len(frames) != 2 || json.Unmarshal(frames[1], &pool) != nil {
		return fmt.Errorf("%w: a pool without its JSON document", ErrReply)
	}
	d.pool.Store(&pool)
	return nc.SetDeadline(time.Time{})
}

// poolRefusal returns the error of a reply 00 to a description, nil for any other.
func poolRefusal(frames [][]byte) error {
	err := readStatus(frames)
	if err != nil && len(frames) > 2 && errors.Is(err, ErrRefused) {
		return fmt.Errorf("%w: %w", ErrPoolDiffers, err)
	}
	return err
}

// maxPoolReply bounds the reply to a description: the pool in JSON, and some hundred bytes a
// group.
const maxPoolReply = 4 << 20
