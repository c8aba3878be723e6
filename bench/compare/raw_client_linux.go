package compare

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"github.com/hitline/hitline/bench/wire"
)

// rawConn is a connection that is used by raw system calls. It ends with a context.
type rawConn struct{ *wire.Conn }

// dialRaw connects to addr. A call that is under way ends with ctx, and after timeout.
func dialRaw(ctx context.Context, addr string, d wire.Dialect, timeout time.Duration) (rawConn, error) {
	control, err := wire.Dial(ctx, wire.Server{Address: addr, Dialect: d, Timeout: timeout})
	if err != nil {
		return rawConn{}, err
	}
	conn, err := control.Conn(ctx)
	return rawConn{conn}, err
}

func (c rawConn) close() { _ = c.Close() } // which does not fail

// dialectClient asks a server in a dialect whose reply is a fixed prefix and the hit.
type dialectClient struct {
	rawConn
	dialect dialect
	load    *chainSet
	before  []byte // the hashes of a request
	reply   []byte // room for one and a little
}

// connectRaw returns how a server at addr is asked in a dialect.
func connectRaw(addr string, d dialect, timeout time.Duration) func(context.Context, *chainSet) (client, error) {
	return func(ctx context.Context, w *chainSet) (client, error) {
		c, err := dialDialect(ctx, addr, d, w, timeout)
		if err != nil {
			return nil, err
		}
		return oneByOne{c}, nil
	}
}

// fillRaw returns how the chains are stored with a server at addr in a dialect.
func fillRaw(addr string, d dialect, timeout time.Duration) *data {
	return &data{fill: func(ctx context.Context, w *chainSet) error {
		c, err := dialDialect(ctx, addr, d, w, timeout)
		if err != nil {
			return err
		}
		defer c.close()
		return c.fill()
	}}
}

func dialDialect(ctx context.Context, addr string, d dialect, w *chainSet, timeout time.Duration) (*dialectClient, error) {
	conn, err := dialRaw(ctx, addr, d.framing, timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return &dialectClient{
		rawConn: conn, dialect: d, load: w, before: d.lookup(w.tokens, w.hashes*hashLen), reply: make([]byte, len(d.prefix)+64),
	}, nil
}

func (c *dialectClient) prepare() error { return nil } // the chains are what is sent

// fill stores all chains, one after the other.
func (c *dialectClient) fill() error {
	before, right := c.dialect.store(c.load.hashes * hashLen)
	reply := make([]byte, len(right))
	for i := range c.load.len() {
		if err := c.Send(before, c.load.chain(i)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, reply); err != nil {
			return err
		}
		if !bytes.Equal(reply, right) {
			return fmt.Errorf("%w: chain %d: %x", measure.ErrAnswer, i, reply)
		}
	}
	return nil
}

func (c *dialectClient) askOne(_ context.Context, r request) (answer, error) {
	c.load.put(r)
	hashes := c.load.chain(r.chain)
	start := time.Now()
	err := c.Send(c.before, hashes)
	var reply []byte
	if err == nil {
		reply, err = c.ReadReply(c.reply, len(c.dialect.prefix)+4, c.dialect.prefix)
	}
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	return answer{binary.BigEndian.Uint32(reply[len(reply)-4:]), took}, nil
}
