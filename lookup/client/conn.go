package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hitline/hitline/netproto"
)

// conn is a connection that serves one exchange at a time: a request and its reply, or a
// batch. It runs on the caller's goroutine. Only close may be called by others.
type conn struct {
	net          net.Conn
	buffered     *bufio.Writer   // of net; nil if that is a socket, whose interrupted writes can go on
	connDeadline time.Time       // the deadline set on net, zero if none
	limits       netproto.Limits // of a reply

	// of the exchange in progress:
	ctx       context.Context
	deadline  time.Time   // zero if none
	stopWatch func() bool // stops watching ctx, nil if it is not watched

	head     []byte      // heads of the requests, reused
	ends     []int       // where the head of each request of a batch ends
	batchID  uint32      // number of the last batch, the generation of its ids
	parts    [][]byte    // heads and blobs, reused; the backing array of bufs
	bufs     net.Buffers // what is not written yet
	in       []byte      // bytes read are in[:inLen]
	inLen    int
	frames   [][]byte // of the last reply; borrowed from in until the next read
	unusable bool     // must be closed, not reused
	replied  bool     // the server has answered at least once
	reported bool     // recordSuccess was called for it
	lastUsed time.Time
	check    connCheck

	instances *instanceWatch // until the server has named its instance; nil then, or if nobody asks
}

// newConn returns a connection for exchanges over nc, which it owns.
func newConn(nc net.Conn) *conn {
	c := &conn{net: nc, in: make([]byte, firstReply), parts: make([][]byte, 0, 2), lastUsed: time.Now()}
	c.check.init(nc)
	if !isSocket(nc) || c.check.raw == nil {
		c.buffered = bufio.NewWriterSize(nc, recordSize)
	}
	return c
}

const (
	// contextPoll is how long an exchange runs before its cancellable context is watched.
	// Watching allocates, and nearly all answers come sooner. A cancellation is noticed at
	// most this much later.
	contextPoll = 2 * time.Millisecond
	// staleAfter is how long a connection may be idle before it is checked for reuse.
	staleAfter = 50 * time.Millisecond
	// firstReply and keepReply are the initial size in bytes of a connection's read
	// buffer, and the largest that it keeps between exchanges.
	firstReply, keepReply = 512, 64 << 10
	// maxKeptBytes is the largest buffer in bytes for what is written that a connection keeps.
	maxKeptBytes = 256 << 10
	// recordSize is the largest TLS record in bytes. To write less at once costs records.
	recordSize = 16 << 10
)

// aLongTimeAgo, set as a deadline, interrupts a read or write at once.
var aLongTimeAgo = time.Unix(1, 0)

// beginExchange sets the context and deadline of the next exchange.
func (c *conn) beginExchange(ctx context.Context, deadline time.Time) error {
	c.ctx, c.deadline = ctx, deadline
	if c.buffered != nil {
		// Not a socket, so perhaps TLS, which is unusable after a write timed out. Its
		// deadline is set once and never polled.
		return c.watchContext()
	}
	return c.setDeadline()
}

// watchContext sets the exchange's deadline on net and has the end of its context
// interrupt net.
func (c *conn) watchContext() error {
	c.connDeadline = c.deadline
	if err := c.net.SetDeadline(c.deadline); err != nil {
		return err
	}
	if c.ctx.Done() != nil {
		nc := c.net
		c.stopWatch = context.AfterFunc(c.ctx, func() { _ = nc.SetDeadline(aLongTimeAgo) })
	}
	return nil
}

// endExchange ends the exchange and drops buffers that are too large to keep.
func (c *conn) endExchange() {
	if c.stopWatch != nil && !c.stopWatch() {
		c.unusable = true // the context's end may set the deadline at any moment
	}
	c.ctx, c.stopWatch = nil, nil
	c.lastUsed = time.Now()
	if cap(c.head) > maxKeptBytes {
		c.head = nil
	}
	if len(c.in) > keepReply {
		c.in, c.frames = make([]byte, firstReply), nil
	}
}

// setDeadline sets a deadline on net that is not later than the exchange's. An earlier one
// is left as it is, because retryIO repeats the read or write. That saves most calls.
func (c *conn) setDeadline() error {
	now, want := time.Now(), c.deadline
	if c.stopWatch == nil && c.ctx.Done() != nil {
		if poll := now.Add(contextPoll); want.IsZero() || poll.Before(want) {
			want = poll
		}
	}
	if want.IsZero() {
		if c.connDeadline.IsZero() {
			return nil
		}
	} else if c.connDeadline.Sub(now) > contextPoll/8 && !c.connDeadline.After(want) {
		return nil
	}
	c.connDeadline = want
	return c.net.SetDeadline(want)
}

// retryIO returns nil if a read or write that failed with err must be repeated, because the
// exchange's own deadline has not passed. Otherwise it returns the error of the exchange.
func (c *conn) retryIO(err error) error {
	if cause := c.ctx.Err(); cause != nil {
		return cause
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return timeoutError(c.ctx, c.deadline)
	}
	if c.stopWatch == nil && c.ctx.Done() != nil {
		return c.watchContext()
	}
	if err := c.setDeadline(); err != nil {
		return err
	}
	return c.ctx.Err() // its end may have set a deadline that setDeadline replaced
}

// exchange writes one request and reads its reply into frames.
func (c *conn) exchange(r *request) error {
	c.head = c.head[:0]
	if c.instances != nil {
		c.head = appendPing(c.head)
	}
	c.head = r.appendHead(c.head, nil)
	c.parts = append(c.parts[:0], c.head)
	if len(r.blob) > 0 {
		c.parts = append(c.parts, r.blob)
	}
	if err := c.write(); err != nil {
		return err
	}
	c.inLen = 0
	at, err := c.readInstance()
	if err != nil {
		return err
	}
	used, err := c.readMessage(at)
	if err != nil {
		return err
	}
	return c.checkEnd(used)
}

// checkEnd returns ErrReply if bytes were read behind the last reply, which ends at end.
func (c *conn) checkEnd(end int) error {
	if end == c.inLen {
		return nil
	}
	return fmt.Errorf("%w: %d bytes behind it", ErrReply, c.inLen-end)
}

// write writes parts. net.Buffers sets each to nil once it is written.
func (c *conn) write() error {
	if c.buffered != nil {
		return c.writeBuffered()
	}
	c.bufs = c.parts
	for {
		_, err := c.bufs.WriteTo(c.net)
		if err == nil {
			return nil
		}
		if err = c.retryIO(err); err != nil {
			return err
		}
	}
}

// writeBuffered writes parts to what is not a socket, in writes as large as TLS records.
func (c *conn) writeBuffered() error {
	defer clear(c.parts)
	for _, part := range c.parts {
		_, _ = c.buffered.Write(part) // its error is that of Flush, too
	}
	err := c.buffered.Flush()
	if err == nil {
		return nil
	}
	if cause := c.retryIO(err); cause != nil {
		return cause
	}
	return err // a TLS connection cannot go on
}

// readMessage reads until in[at:] begins with a whole message. It parses the message into
// frames and returns its end in in.
func (c *conn) readMessage(at int) (end int, err error) {
	for {
		frames, used, parseErr := netproto.ParseMessage(c.in[at:c.inLen], c.limits, c.frames[:0])
		if parseErr == nil {
			c.frames, c.replied = frames, true
			return at + used, nil
		}
		if !errors.Is(parseErr, netproto.ErrShort) {
			return at, fmt.Errorf("%w: %w", ErrReply, parseErr)
		}
		if err != nil {
			if err = c.retryIO(err); err != nil {
				return at, err
			}
		}
		if c.inLen == len(c.in) {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
		var n int
		n, err = c.net.Read(c.in[c.inLen:])
		c.inLen += n
	}
}

// close closes the connection, also during an exchange.
func (c *conn) close() { closeConn(c.net) }

// stale reports whether an idle connection cannot be reused: the server has closed it, or
// has sent something unrequested. It checks only after staleAfter.
func (c *conn) stale(now time.Time) bool {
	return now.Sub(c.lastUsed) > staleAfter && !c.check.idle()
}
