package server

import (
	"cmp"
	"net"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/held"
	"github.com/hitline/hitline/lookup/server/internal/kept"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
	"github.com/hitline/hitline/netproto"
)

// conn is one connection: bytes in and bytes out. What the bytes mean it leaves to a protocol. It belongs to its event
// loop; other goroutines read the atomic fields, and call end.
//
// gnet gives each connection that has bytes one read of its loop's buffer, in turn. A turn that has little to do reads
// on. One that has much to do ends between two requests: the bytes that are left are kept, and served once the loop has
// served the others. So a peer delays others by its turns, and not by what it sends. gnet cannot stop reading from one
// connection, so a peer that sends more than it is served has more and more bytes kept: see keep.
type conn struct {
	loop     *eventLoop
	protocol protocol
	reader   *netproto.Reader
	wire     peerConn      // that of gnet, or a halfClosed
	tls      *tlspair.Conn // nil without TLS
	peer     net.Addr      // for the log, may be nil

	life
	err    error                  // of fail, for the log
	limits atomic.Pointer[Limits] // of the message that is being received, or of the last one
	times  *times
	unsent *unsent
	kept   *kept.Bytes
	held   held.Holder // bytes charged to the admission
	queued bool        // it is in eventLoop.waiting; guarded by eventLoop.mu
	inTurn bool        // the event loop serves it

	began            int64        // when the first byte of the message arrived that is being received, in monotime
	messageReadAt    int64        // when it was read: later, if it was kept. The message's timeout goes by it
	unanswered       atomic.Int64 // jobs without a reply
	unansweredBefore int          // when the limits were adopted
}

// protocol is what the bytes of a connection mean. Its reader feeds it, and the conn makes four calls, all on the event
// loop.
type protocol interface {
	netproto.Handler
	// wake serves what other goroutines have made ready.
	wake()
	// pending returns what the requests hold, and what may follow them.
	pending() pending
	// refuse makes the request that is being received fail, and hold nothing.
	refuse(err error)
	// close releases everything. It is the last call.
	close()
}

// pending are the requests of a connection that are not answered yet, the one that is being received included.
type pending struct {
	bytes   int  // that they hold
	small   int  // of them, that others cannot keep out: see held.Admission.Set
	waits   bool // some are being served, so that what waits is served later
	barrier bool // nothing may be read before one of them has ended
	over    bool // nothing is served after them: the connection ends when that loses nothing
}

// newConn returns a connection of a loop. Its caller sets protocol.
func newConn(loop *eventLoop, wire peerConn) *conn {
	parts := new(struct { // what other event loops write to is on other cache lines
		_      cpu.CacheLinePad
		conn   conn
		times  times
		unsent unsent
		kept   kept.Bytes
		_      cpu.CacheLinePad
	})
	c := &parts.conn
	c.loop, c.wire, c.reader = loop, wire, netproto.NewReader(netproto.Limits{}, 0)
	c.times, c.unsent, c.kept = &parts.times, &parts.unsent, &parts.kept
	c.adoptLimits()
	c.times.lastActive.Store(monotime.Now())
	return c
}

// inQueue implements waiter.
func (c *conn) inQueue() *bool { return &c.queued }

// fail makes the connection end by an error. The event loop calls it.
func (c *conn) fail(err error) {
	if c.end(reasonOf(err)) {
		c.err = err
	}
}

// failure returns why the connection ends, nil if it does not. The event loop calls it.
func (c *conn) failure() error {
	if !c.isEnding() {
		return nil
	}
	return cmp.Or(c.err, errConnGone)
}

// close releases what the connection holds. Its event loop calls it, or Server.stop.
func (c *conn) close() {
	c.enter(stateClosed, closedByPeer)
	c.loop.recordAsks(false, c.times.lastActive.Load())
	c.protocol.close()
	if c.inTurn { // which reads some of them
		c.kept.Forget()
	}
	c.kept.Release()
}

// adoptLimits takes the limits of the server for the next message. Nobody is closed for what arrived by earlier ones.
func (c *conn) adoptLimits() {
	limits := c.loop.limits.Load()
	if limits == c.limits.Load() {
		return
	}
	c.limits.Store(limits)
	c.reader.SetMaxMessage(limits.MaxMessage)
	c.unansweredBefore = int(c.unanswered.Load())
}

// readBuffers holds the buffers of readOn.
var readBuffers = sync.Pool{New: func() any { return new([readOnBuffer]byte) }}

// serve runs a turn: for what has arrived on g, or for what other goroutines have made ready if g is nil or has no
// bytes. It returns an error if the connection must be closed, also for a panic.
func (c *conn) serve(g gnet.Conn) (err error) {
	defer requesterror.Recover(&err)
	var p []byte
	if g != nil {
		if p, err = g.Peek(-1); err != nil {
			return nil // the connection is closing
		}
	}
	c.beginTurn()
	if len(p) == 0 {
		return c.endTurn(c.wake())
	}
	n := len(p)
	if err = c.receive(p); err == nil {
		_, _ = g.Discard(n)
		err = c.readOn(g.Fd(), n)
	}
	return c.endTurn(err)
}

// beginTurn begins a turn: what an event loop does for one connection before it serves the next.
func (c *conn) beginTurn() {
	c.inTurn = true
	c.loop.turn.begin()
}

// endTurn writes the replies of the turn. It returns err, or why no reply is sent any more.
func (c *conn) endTurn(err error) error {
	c.flush(0)
	c.loop.recordAsks(false, c.times.lastActive.Load())
	t := &c.loop.turn
	t.end()
	c.inTurn = false
	if failure := c.failure(); failure != nil { // what was charged may be given back already
		return failure
	}
	t.observe(c.loop.metrics)
	c.times.update(c.reader, c.messageReadAt)
	return cmp.Or(err, c.updateHeld())
}

// readOn reads on in the same turn, past gnet, after a read of n bytes that filled gnet's buffer. On
// an error or the end of the stream it returns nil: gnet's next read sees it again.
func (c *conn) readOn(fd, n int) error {
	if n < readBuffer {
		return nil
	}
	buf := readBuffers.Get().(*[readOnBuffer]byte)
	defer readBuffers.Put(buf)
	for !c.isKeeping() && c.loop.turn.mayReadOn() {
		// many of the hashes that are missing, but no fewer than gnet reads, since a read that is not filled is the
		// last
		size := min(max(c.reader.BlobLeft(), readBuffer), readOnBuffer)
		n, err := unix.Read(fd, buf[:size])
		if err != nil || n <= 0 {
			return nil
		}
		if err := c.receive(buf[:n]); err != nil || n < size {
			return err
		}
	}
	return nil
}

// receive serves the bytes of a read. It returns an error if the connection must be closed. p is borrowed until it
// returns.
func (c *conn) receive(p []byte) error {
	c.times.lastActive.Store(c.loop.turn.readAt)
	if !c.reader.InMessage() {
		c.adoptLimits()
	}
	if c.isKeeping() || len(p) == readBuffer && c.loop.isCrowded() {
		return c.keep(p)
	}
	n, err := c.feed(p)
	if err == nil && n < len(p) {
		err = c.keep(p[n:])
	}
	return err
}

// feed reads bytes until they end, until the turn is over, or until a request after which others must
// wait. It returns how many it has read.
func (c *conn) feed(p []byte) (n int, err error) {
	if !c.reader.InMessage() {
		c.nextMessage()
	}
	n, err = c.reader.Feed(p, c.protocol)
	return n, cmp.Or(c.failure(), err)
}

// nextMessage says that no message is being received: the next one begins in this read.
func (c *conn) nextMessage() {
	t := &c.loop.turn
	c.began, c.messageReadAt = t.readAt, max(t.readAt, monotime.At(t.start))
}

// endRequest is called when a request was read to its end. It returns false if the rest of the bytes is to be read
// later.
func (c *conn) endRequest() (more bool) {
	c.flush(flushAt)
	c.nextMessage()
	c.adoptLimits()
	return !c.loop.turn.endRequest() && !c.isEnding() && !c.isBlocked()
}

// isBlocked reports whether no request may be read before another has ended, also because there is no memory for it.
func (c *conn) isBlocked() bool {
	if c.unanswered.Load() == 0 {
		return false
	}
	p := c.protocol.pending()
	return p.barrier || p.waits && !c.fits(jobBytes)
}

// isKeeping reports whether bytes that arrive are kept: because a request before them must end first,
// or because others are kept already.
func (c *conn) isKeeping() bool { return c.kept.Size() > 0 || c.isBlocked() }

// keep keeps bytes for a later turn. A client that keeps to api.Limits never has more than a message and
// its share of requests here; one that has is closed.
func (c *conn) keep(p []byte) error {
	c.kept.Append(p, c.loop.turn.readAt)
	clear(p) // there may be a token in it
	if int64(c.kept.Size()) > c.limits.Load().MaxMessage+maxInFlightBytes {
		return errInFlight
	}
	switch {
	case c.isBlocked():
		return nil
	case !c.charge(): // it is served rather than closed
		c.loop.turn.extend(requestsWithoutMemory)
		return c.serveKept()
	}
	c.loop.push(c)
	return nil
}

// serveKept serves what was kept, until the turn is over: the event loop then serves others first.
func (c *conn) serveKept() error {
	for c.kept.Size() > 0 && !c.isBlocked() {
		if c.loop.turn.isOver() {
			c.loop.push(c)
			return nil
		}
		p, readAt := c.kept.Front()
		c.loop.turn.readAt = readAt
		n, err := c.feed(p)
		if err != nil {
			return err
		}
		if n == c.kept.Size() { // IdleTimeout begins now: the peer may have waited for longer
			c.times.lastActive.Store(monotime.Now())
		}
		c.kept.Drop(n)
	}
	return nil
}

// wake serves what other goroutines have made ready, and then what was kept. It returns an error as receive does.
func (c *conn) wake() error {
	c.unsent.update(c.wire, c.tls)
	c.protocol.wake()
	if err := c.failure(); err != nil {
		return err
	}
	return c.serveKept()
}

// flush writes the replies of the turn if they have more than minBytes bytes. The connection fails if that fails.
func (c *conn) flush(minBytes int) {
	t := &c.loop.turn
	if len(t.out) <= minBytes || c.isEnding() {
		return
	}
	c.unsent.written += int64(len(t.out))
	if _, err := c.wire.Write(t.out); err != nil {
		c.fail(errConnGone) // OnClose has already run
	} else if c.unsent.update(c.wire, c.tls) > c.limits.Load().MaxUnsent {
		c.fail(errSlowReader)
	}
	t.out = t.out[:0]
	c.loop.recordAsks(!c.isEnding(), c.times.lastActive.Load())
}

// isAnswered reports whether no complete request of the connection waits for its reply.
func (c *conn) isAnswered() bool { return c.unanswered.Load() == 0 && c.kept.Size() == 0 }
