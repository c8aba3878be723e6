package compare

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/internal/blocking"
)

// wire asks a server on a socket.
type wire struct {
	dialect dialect
	load    *workload
	socket  blocking.Socket
	before  []byte // the hashes of a request
	reply   []byte // room for one and a little
	vector  []unix.Iovec

	forget func() bool // to watch the context
	mu     sync.Mutex  // of what follows
	closed bool
}

// openWire returns how a server at addr, spoken to in a dialect, is filled and
// connected to.
func openWire(addr string, d dialect, timeout time.Duration) func(context.Context, *workload) (asker, error) {
	return func(ctx context.Context, w *workload) (asker, error) {
		c, err := dialWire(ctx, addr, d, w, timeout)
		if err != nil {
			return nil, err
		}
		if err := c.fill(); err != nil {
			c.close()
			return nil, fmt.Errorf("storing: %w", err)
		}
		return c, nil
	}
}

// dialWire connects to addr. What waits on the connection ends with ctx.
func dialWire(ctx context.Context, addr string, d dialect, w *workload, timeout time.Duration) (*wire, error) {
	s, err := blocking.Dial(ctx, addr, timeout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	blobLen := w.hashes * hashLen
	c := &wire{
		dialect: d, load: w, socket: s, before: d.lookup(w.tokens, blobLen),
		reply: make([]byte, len(d.prefix)+64), vector: make([]unix.Iovec, 2),
	}
	c.forget = context.AfterFunc(ctx, c.interrupt)
	if d.zmtp {
		err = c.greet()
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("%s: greeting: %w", addr, err)
	}
	return c, nil
}

// interrupt ends a call that is under way on the socket.
func (c *wire) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed { // else its number may be another file's by now
		c.socket.Shutdown()
	}
}

func (c *wire) close() {
	c.forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.socket.Close()
}

func (c *wire) prepare() error { return nil }

// greet makes the handshake of ZMTP 3 as a REQ socket. The server's READY comes
// whole before any reply.
func (c *wire) greet() error {
	if err := c.write(append(zmtpGreeting[:len(zmtpGreeting):len(zmtpGreeting)], zmtpReady...), nil); err != nil {
		return err
	}
	greeting := make([]byte, len(zmtpGreeting))
	if err := c.readFull(greeting); err != nil {
		return err
	}
	if greeting[0] != 0xFF || greeting[9] != 0x7F || greeting[10] < 3 {
		return fmt.Errorf("%w: it is not one of ZMTP 3: %x", ErrAnswer, greeting[:12])
	}
	header := make([]byte, 2)
	if err := c.readFull(header); err != nil {
		return err
	}
	const shortCommand = 4
	if header[0] != shortCommand {
		return fmt.Errorf("%w: a frame %x in place of READY", ErrAnswer, header)
	}
	body := make([]byte, header[1])
	if err := c.readFull(body); err != nil {
		return err
	}
	if !bytes.HasPrefix(body, []byte("\x05READY")) {
		return fmt.Errorf("%w: %q in place of READY", ErrAnswer, body)
	}
	return nil
}

// fill stores all chains, one after the other.
func (c *wire) fill() error {
	if c.dialect.store == nil {
		return nil
	}
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
			return fmt.Errorf("%w: chain %d: %x", ErrAnswer, i, reply)
		}
	}
	return nil
}

func (c *wire) ask(_ context.Context, chain int) (hit uint32, took time.Duration, err error) {
	hashes := c.load.chain(chain)
	size := len(c.dialect.prefix) + 4
	have := 0
	start := time.Now()
	err = c.write(c.before, hashes)
	for err == nil && have < size {
		have, err = c.more(have)
	}
	took = time.Since(start)
	if err == nil && have > size {
		err = fmt.Errorf("%w: %x, of which %d bytes are one", ErrAnswer, c.reply[:have], size)
	}
	if err != nil {
		return 0, 0, err
	}
	return binary.BigEndian.Uint32(c.reply[size-4:]), took, nil
}

// more reads once behind what it has of a reply. Waiting for the rest of a refusal
// could be for ever.
func (c *wire) more(have int) (int, error) {
	n, err := c.socket.Read(c.reply[have:])
	if err != nil {
		return have, lost(err)
	}
	have += n
	if !blocking.StartsLike(c.reply[:have], c.dialect.prefix) {
		return have, fmt.Errorf("%w: it begins with %x", ErrAnswer, c.reply[:have])
	}
	return have, nil
}

// write writes two buffers, the second of which may be empty, with one call.
func (c *wire) write(a, b []byte) error {
	v := c.vector[:1]
	v[0].Base = &a[0]
	v[0].SetLen(len(a))
	if len(b) > 0 {
		v = c.vector[:2]
		v[1].Base = &b[0]
		v[1].SetLen(len(b))
	}
	return lost(c.socket.WriteAll(v))
}

// readFull fills b.
func (c *wire) readFull(b []byte) error {
	for len(b) > 0 {
		n, err := c.socket.Read(b)
		if err != nil {
			return lost(err)
		}
		b = b[n:]
	}
	return nil
}

// lost marks an error of a connection.
func lost(err error) error {
	if err == nil || errors.Is(err, ErrAnswer) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
