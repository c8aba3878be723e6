package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hitline/hitline/netproto"
)

// request is one request of a client, encoded when it is written. blob is the
// caller's.
type request struct {
	tag       netproto.Tag
	numTokens uint32
	hashLen   int
	rank      GroupRank
	blob      []byte
	anchors   *netproto.Anchors // of TagAnchors
	chunks    *chunks           // of TagStore where they are numbered
}

// chunks says where a store's keys stand in their chain.
type chunks struct {
	number uint32
	behind []byte // the frame with the key in front of the first, if there is one; at the end of the blob
}

// appendHead appends the request but for its blob.
func (r *request) appendHead(dst, envelope []byte) []byte {
	switch r.tag {
	case netproto.TagLookup:
		return netproto.AppendLookup(dst, envelope, r.numTokens, r.hashLen, len(r.blob))
	case netproto.TagExplain:
		return netproto.AppendExplain(dst, envelope, r.numTokens, r.hashLen, len(r.blob))
	case netproto.TagAnchors:
		return netproto.AppendAnchors(dst, envelope, r.numTokens, r.anchors, r.hashLen, len(r.blob))
	case netproto.TagStore, netproto.TagEvict:
		if ch := r.chunks; ch != nil {
			return netproto.AppendChunks(dst, envelope, r.rank, ch.number, r.hashLen, len(r.blob)-len(ch.behind), len(ch.behind) > 0)
		}
		return netproto.AppendKeys(dst, envelope, r.tag, r.rank, r.hashLen, len(r.blob))
	}
	return netproto.AppendRequest(dst, envelope, r.tag)
}

// conn is a connection that serves one request, or one batch, at a time, on the
// goroutine of its caller. Only cut may be called by others.
type conn struct {
	net   net.Conn
	armed time.Time // the deadline that net has, zero if none

	// of the exchange under way:
	ctx   context.Context
	until time.Time   // when it must be over, zero for never
	stop  func() bool // ends the watch over ctx, nil while there is none

	head    []byte      // heads of the requests, reused
	ends    []int       // where each of a batch ends
	batchID uint32      // counts batches, for their ids
	parts   [][]byte    // backing of bufs, reused
	bufs    net.Buffers // heads and blobs, written without joining them
	in      []byte
	have    int      // bytes of in
	frames  [][]byte // of the last reply, borrowed from in
	spoiled bool     // not to be used again
	replied bool     // has answered once
	noted   bool     // which the dialer knows
	used    time.Time
	alive   liveness
}

func newConn(nc net.Conn) *conn {
	c := &conn{net: nc, in: make([]byte, firstReply), parts: make([][]byte, 0, 2), used: time.Now()}
	c.alive.watch(nc)
	return c
}

const (
	// slice is how long a connection waits before it has the end of a cancellable
	// context watched, which costs an allocation: nearly all answers are there
	// before, and a cancellation is noticed that much later at worst.
	slice = 2 * time.Millisecond
	// staleAfter is the time unused after which a connection is looked at before
	// it is used again: its server may have gone.
	staleAfter = 50 * time.Millisecond
	// firstReply is the buffer in bytes that a connection begins to read replies
	// with, and keepReply the largest that it keeps.
	firstReply, keepReply = 512, 64 << 10
)

// longAgo as a deadline wakes a read or write at once.
var longAgo = time.Unix(1, 0)

// begin starts an exchange.
func (c *conn) begin(ctx context.Context, until time.Time) error {
	c.ctx, c.until = ctx, until
	if c.alive.raw == nil {
		// Not a socket, and after a write that ran out of time perhaps of no use: TLS
		// is not. So its time is never cut into slices.
		return c.watch()
	}
	return c.arm()
}

// watch sees to it that net is waited for until the exchange must be over, or its
// context ends.
func (c *conn) watch() error {
	c.armed = c.until
	if err := c.net.SetDeadline(c.until); err != nil {
		return err
	}
	if c.ctx.Done() != nil {
		nc := c.net
		c.stop = context.AfterFunc(c.ctx, func() { _ = nc.SetDeadline(longAgo) })
	}
	return nil
}

// end ends an exchange.
func (c *conn) end() {
	if c.stop != nil && !c.stop() {
		c.spoiled = true // the watch is about to touch the deadline
	}
	c.ctx, c.stop = nil, nil
	c.used = time.Now()
	if cap(c.head) > maxKeptBytes {
		c.head = nil
	}
	if len(c.in) > keepReply {
		c.in, c.frames = make([]byte, firstReply), nil
	}
}

// arm sees to a deadline of net that is not later than the exchange may wait. An
// earlier one is as good, the wait is then resumed: so it is seldom moved.
func (c *conn) arm() error {
	now, want := time.Now(), c.until
	if c.stop == nil && c.ctx.Done() != nil {
		if look := now.Add(slice); want.IsZero() || look.Before(want) {
			want = look
		}
	}
	if want.IsZero() {
		if c.armed.IsZero() {
			return nil
		}
	} else if c.armed.Sub(now) > slice/8 && !c.armed.After(want) {
		return nil
	}
	c.armed = want
	return c.net.SetDeadline(want)
}

// resume decides about a failed read or write: nil if it is to be tried again, as
// only a slice of the time is over.
func (c *conn) resume(err error) error {
	if cause := c.ctx.Err(); cause != nil {
		return cause
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if !c.until.IsZero() && !time.Now().Before(c.until) {
		return timeoutOf(c.ctx, c.until)
	}
	if c.stop == nil && c.ctx.Done() != nil {
		return c.watch()
	}
	if err := c.arm(); err != nil {
		return err
	}
	return c.ctx.Err() // the watch may have set its deadline just before
}

// timeoutOf names what has run out at until: the context's time or the client's.
func timeoutOf(ctx context.Context, until time.Time) error {
	if at, ok := ctx.Deadline(); ok && !at.After(until) {
		return errContextTime
	}
	return os.ErrDeadlineExceeded
}

// errContextTime says that the time of a context has run out, which the context
// itself may notice a moment later.
var errContextTime = fmt.Errorf("%w: %w", context.DeadlineExceeded, os.ErrDeadlineExceeded)

// exchange sends one request and reads its reply into frames.
func (c *conn) exchange(r *request) error {
	c.head = r.appendHead(c.head[:0], nil)
	blob := r.blob
	if r.tag == netproto.TagAnchors { // few and not the caller's: one piece is written sooner than two
		c.head, blob = append(c.head, blob...), nil
	}
	c.parts = append(c.parts[:0], c.head)
	if len(blob) > 0 {
		c.parts = append(c.parts, blob)
	}
	if err := c.write(); err != nil {
		return err
	}
	c.have = 0
	used, err := c.next(0)
	if err == nil && used < c.have {
		err = fmt.Errorf("%w: %d bytes behind it", ErrReply, c.have-used)
	}
	return err
}

// write writes parts, which are forgotten as they are written.
func (c *conn) write() error {
	c.bufs = c.parts
	for {
		_, err := c.bufs.WriteTo(c.net)
		if err == nil {
			return nil
		}
		if err = c.resume(err); err != nil {
			return err
		}
	}
}

// next reads until in[at:] begins with a whole message, parses it into frames and
// returns where it ends.
func (c *conn) next(at int) (end int, err error) {
	for {
		frames, used, parseErr := netproto.ParseMessage(c.in[at:c.have], netproto.Limits{}, c.frames[:0])
		if parseErr == nil {
			c.frames, c.replied = frames, true
			return at + used, nil
		}
		if !errors.Is(parseErr, netproto.ErrShort) {
			return at, fmt.Errorf("%w: %w", ErrReply, parseErr)
		}
		if err != nil {
			if err = c.resume(err); err != nil {
				return at, err
			}
		}
		if c.have == len(c.in) {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
		var n int
		n, err = c.net.Read(c.in[c.have:])
		c.have += n
	}
}

// cut closes the connection, also under an exchange.
func (c *conn) cut() { _ = c.net.Close() }

// stale tells whether the connection was unused for a while and its server has
// closed it, or sent what nobody asked for.
func (c *conn) stale(now time.Time) bool {
	return now.Sub(c.used) > staleAfter && !c.alive.quiet()
}
