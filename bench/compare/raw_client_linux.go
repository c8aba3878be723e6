package compare

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/wire"
)

// rawConn is a connection that is used by raw system calls. It ends with a context.
type rawConn struct {
	wire.Socket
	vector [2]unix.Iovec

	stopWatching func() bool // the context
	mu           sync.Mutex  // guards what follows
	closed       bool
}

// dialRaw connects to addr. A call that is under way ends with ctx, and after timeout.
func dialRaw(ctx context.Context, addr string, timeout time.Duration) (*rawConn, error) {
	s, err := wire.Dial(ctx, addr, timeout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrLost, err)
	}
	c := &rawConn{Socket: s}
	c.stopWatching = context.AfterFunc(ctx, c.interrupt)
	return c, nil
}

// interrupt ends a call that is under way on the socket.
func (c *rawConn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed { // else its number may be another file's by now
		c.Shutdown()
	}
}

func (c *rawConn) close() {
	c.stopWatching()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.Close()
}

// write writes two buffers, the second of which may be empty, with one call.
func (c *rawConn) write(a, b []byte) error {
	v := c.vector[:1]
	v[0].Base = &a[0]
	v[0].SetLen(len(a))
	if len(b) > 0 {
		v = c.vector[:2]
		v[1].Base = &b[0]
		v[1].SetLen(len(b))
	}
	return lost(c.WriteAll(v))
}

// readFull fills b.
func (c *rawConn) readFull(b []byte) error {
	for len(b) > 0 {
		n, err := c.Read(b)
		if err != nil {
			return lost(err)
		}
		b = b[n:]
	}
	return nil
}

// readReply reads a reply of so many bytes into b, which has room for more, and
// returns it. The reply begins with prefix: waiting for the rest of a refusal could be
// for ever.
func (c *rawConn) readReply(b []byte, size int, prefix []byte) ([]byte, error) {
	have := 0
	for have < size {
		n, err := c.Read(b[have:])
		if err != nil {
			return nil, lost(err)
		}
		have += n
		if !wire.StartsLike(b[:have], prefix) {
			return nil, fmt.Errorf("%w: it begins with %x", measure.ErrAnswer, b[:min(have, len(prefix)+64)])
		}
	}
	if have > size {
		return nil, fmt.Errorf("%w: %x, of which %d bytes are one", measure.ErrAnswer, b[max(0, size-8):have], size)
	}
	return b[:size], nil
}

// lost marks an error of a connection.
func lost(err error) error {
	if err == nil || errors.Is(err, measure.ErrAnswer) || errors.Is(err, measure.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", measure.ErrLost, err)
}

// dialectClient asks a server in a dialect whose reply is a fixed prefix and the hit.
type dialectClient struct {
	*rawConn
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
	conn, err := dialRaw(ctx, addr, timeout)
	if err != nil {
		return nil, err
	}
	c := &dialectClient{
		rawConn: conn, dialect: d, load: w, before: d.lookup(w.tokens, w.hashes*hashLen), reply: make([]byte, len(d.prefix)+64),
	}
	if d.zmtp {
		if err := c.handshake(); err != nil {
			c.close()
			return nil, fmt.Errorf("%s: greeting: %w", addr, err)
		}
	}
	return c, nil
}

func (c *dialectClient) prepare() error { return nil } // the chains are what is sent

// handshake makes the handshake of ZMTP 3 as a REQ socket. The server's READY comes
// whole before any reply.
func (c *dialectClient) handshake() error {
	if err := c.write(append(zmtpGreeting[:len(zmtpGreeting):len(zmtpGreeting)], zmtpReady...), nil); err != nil {
		return err
	}
	greeting := make([]byte, len(zmtpGreeting))
	if err := c.readFull(greeting); err != nil {
		return err
	}
	if greeting[0] != 0xFF || greeting[9] != 0x7F || greeting[10] < 3 {
		return fmt.Errorf("%w: it is not one of ZMTP 3: %x", measure.ErrAnswer, greeting[:12])
	}
	header := make([]byte, 2)
	if err := c.readFull(header); err != nil {
		return err
	}
	const shortCommand = 4
	if header[0] != shortCommand {
		return fmt.Errorf("%w: a frame %x in place of READY", measure.ErrAnswer, header)
	}
	body := make([]byte, header[1])
	if err := c.readFull(body); err != nil {
		return err
	}
	if !bytes.HasPrefix(body, []byte("\x05READY")) {
		return fmt.Errorf("%w: %q in place of READY", measure.ErrAnswer, body)
	}
	return nil
}

// fill stores all chains, one after the other.
func (c *dialectClient) fill() error {
	before, right := c.dialect.store(c.load.hashes * hashLen)
	reply := make([]byte, len(right))
	for i := range c.load.len() {
		if err := c.write(before, c.load.chain(i)); err != nil {
			return err
		}
		if err := c.readFull(reply); err != nil {
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
	err := c.write(c.before, hashes)
	var reply []byte
	if err == nil {
		reply, err = c.readReply(c.reply, len(c.dialect.prefix)+4, c.dialect.prefix)
	}
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	return answer{binary.BigEndian.Uint32(reply[len(reply)-4:]), took}, nil
}
