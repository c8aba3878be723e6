package client

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// transport is one connection to a server with many requests in flight, matched to their replies
// by envelopes. A lost connection is dialed anew when a call is queued; outage has the rule.
//
// The goroutine run, the writer, dials, writes and closes the connection. Each connection has a
// second goroutine that reads replies; the writer waits for its end. Callers only queue calls and
// abandon them.
type transport struct {
	dialer  *dialer
	timeout time.Duration // of a call whose context has no deadline, and of dialing
	ctx     context.Context
	cancel  context.CancelFunc // called by close, ends ctx
	stopped chan struct{}      // closed when run has returned
	backs   sync.WaitGroup     // of dialBack
	wake    chan struct{}      // capacity 1; a token wakes the parked writer

	mu       sync.Mutex
	queue    []*call               // not written yet, in order
	delayed  map[*call]*time.Timer // refused as busy, to be queued again
	setup    []*call               // of the connection: see newSetup; nil once it is written
	inFlight flight                // the requests without a reply
	conn     net.Conn              // nil if there is none; set by the writer alone
	socket   bool                  // conn is a socket, so an interrupted write can continue
	readErr  error                 // why the reader of conn ended, nil while it runs
	outage   outage                // while conn is nil, or its setup is not answered
	redial   *time.Timer           // wakes the writer for the next dial; nil at first
	spare    *spare                // a connection to go back to, nil for none
	silentAt time.Time             // the last reply, or the first request after there was none
	pool     *api.Pool             // as the server has told it last, nil if it was not asked
	alignTo  int64                 // api.Instance.PromptAlignment, as the server has told it last; 0 if it has not
	parked   bool                  // the writer waits for wake
	closed   bool

	refusedLast bool // the last reply of conn, to no request of its setup, was a refusal

	calls sync.Pool // of *call

	out    []byte      // of the writer alone: what it writes
	parts  [2][]byte   // out and a large blob; the backing array of bufs
	bufs   net.Buffers // what of them is not written yet
	reader replyReader
	limits netproto.Limits // of replies
}

// newTransport starts a transport, which dials when a call is queued.
func newTransport(d *dialer, timeout time.Duration) *transport {
	t := &transport{
		dialer: d, timeout: timeout, delayed: map[*call]*time.Timer{},
		stopped: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	t.outage.pauses = d.pauses
	t.limits = netproto.Limits{MaxFrames: envelopeFrames + maxBody, MaxFrame: t.maxFrame}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	go t.run()
	return t
}

// run is the writer's goroutine. It returns after close.
func (t *transport) run() {
	defer close(t.stopped)
	for {
		open, err := t.awaitWork()
		if open && err == nil {
			err = t.writeQueued()
		}
		if err != nil {
			t.failConn(err)
		}
		if !open {
			return
		}
	}
}

// awaitWork waits until there is something to write, or to dial for. It returns an error if the connection has
// failed, and false if the transport is closed.
func (t *transport) awaitWork() (open bool, lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case t.closed:
			return false, errClosed
		case t.readErr != nil:
			return true, t.readErr
		case t.conn == nil && t.dialDue(), t.conn != nil && t.setup != nil:
			return true, nil
		case t.isReady() && t.spare != nil && t.inFlight.len() == 0:
			return true, nil
		case t.isReady() && len(t.queue) > 0 && t.inFlight.fits(t.queue[0]):
			return true, nil
		}
		t.parked = true
		t.mu.Unlock()
		<-t.wake
		t.mu.Lock()
	}
}

// wakeWriter wakes the writer if it is parked. mu is held.
func (t *transport) wakeWriter() {
	if t.parked {
		t.parked = false
		t.wake <- struct{}{}
	}
}

// isReady reports whether there is a connection whose setup was answered. mu is held.
func (t *transport) isReady() bool { return t.conn != nil && t.inFlight.settingUp == 0 }

// connect dials.
func (t *transport) connect() {
	nc, token, err := t.dialer.dial(t.ctx, t.timeout)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed: // failConn fails what is queued, with errClosed
		if err == nil {
			closeConn(nc)
		}
	case err != nil:
		t.dialFailed(err)
	default:
		t.setConn(nc, token)
	}
}

// setConn sets a new connection. mu is held.
func (t *transport) setConn(nc net.Conn, token string) {
	_, t.socket = nc.(syscall.Conn) // not if it is TLS or the like over one
	t.conn, t.refusedLast = nc, false
	t.inFlight.limits = defaultLimits
	t.setup = t.newSetup(token)
	t.startReader(nc)
}

// spare is a connection to the entry that the client begins with, while it uses another.
type spare struct {
	conn  net.Conn
	token string // to send on it
}

// dialBack dials the entry that the client begins with, for goBack. If it fails the client stays where it is.
func (t *transport) dialBack() {
	nc, token, err := t.dialer.dialEntry(t.ctx, t.dialer.first, t.timeout)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.spare != nil {
		closeConn(nc)
		return
	}
	t.spare = &spare{nc, token}
	t.wakeWriter()
}

// goBack replaces the connection, on which nothing is in flight, by the spare one.
func (t *transport) goBack() {
	closeConn(t.conn)
	<-t.reader.stopped
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readErr = nil
	t.dialer.at = t.dialer.first
	t.setConn(t.spare.conn, t.spare.token)
	t.spare = nil
}

const (
	// maxCopied is the largest blob in bytes that is copied to be written with others. A larger
	// one is written from the caller's memory.
	maxCopied = 64 << 10
	// maxWrite bounds the bytes of one write, but for its last request.
	maxWrite = 256 << 10
)

// writeQueued writes queued calls, or dials if there is no connection. An error means that the
// connection has failed.
func (t *transport) writeQueued() error {
	runtime.Gosched() // callers that are about to queue a call share this write
	if t.conn == nil {
		t.connect()
		return nil
	}
	t.mu.Lock()
	if t.isReady() && t.spare != nil && t.inFlight.len() == 0 {
		t.mu.Unlock()
		t.goBack()
		return nil
	}
	if t.isReady() && t.dialer.backDue() {
		t.backs.Go(t.dialBack)
	}
	large := t.encodeQueued()
	t.mu.Unlock()
	return t.write(large)
}

// encodeQueued moves calls from the queue to out. It returns the last one if its blob is to be
// written from where it is, otherwise nil. mu is held.
func (t *transport) encodeQueued() (large *call) {
	if t.inFlight.len() == 0 {
		t.silentAt = time.Now()
	}
	t.out = t.out[:0]
	for _, cl := range t.setup {
		t.encode(cl)
	}
	t.setup = nil
	if !t.isReady() {
		return nil
	}
	n := 0
	for ; n < len(t.queue) && len(t.out) < maxWrite && large == nil; n++ {
		cl := t.queue[n]
		if cl.async != nil && cl.async.expired() {
			t.finish(cl, errExpired)
			continue
		}
		if cl.connect {
			t.deliver(cl, nil)
			continue
		}
		if !t.inFlight.fits(cl) {
			break
		}
		if t.encode(cl); cl.state == callWriting {
			large = cl
		}
	}
	t.queue = slices.Delete(t.queue, 0, n)
	return large
}

// encode gives a call a slot and appends it to out, without its blob if that is large.
func (t *transport) encode(cl *call) {
	cl.slot = t.inFlight.add(cl)
	var id [envelopeLen]byte
	t.out = cl.appendHead(t.out, appendEnvelope(id[:0], cl.slot, t.inFlight.slots[cl.slot].generation))
	if len(cl.blob) > maxCopied {
		cl.state = callWriting
		return
	}
	t.out = append(t.out, cl.blob...)
	cl.state = callSent
}

// write writes out, and the blob of a call if large is not nil. If that call is abandoned
// meanwhile the write is interrupted and goes on with a copy of what is left of the blob, so that
// its caller may return.
func (t *transport) write(large *call) error {
	if large == nil && len(t.out) == 0 { // calls that have expired, or wait for the setup alone
		return nil
	}
	if large == nil {
		_, err := t.conn.Write(t.out)
		return err
	}
	defer clear(t.parts[:])
	t.parts = [2][]byte{t.out, large.blob}
	t.bufs = t.parts[:]
	if !t.socket { // an interrupted TLS connection cannot go on
		t.parts[1] = slices.Clone(large.blob)
		t.finishBlob(large) // from here on the call may be another's
		_, err := t.bufs.WriteTo(t.conn)
		return err
	}
	_, err := t.bufs.WriteTo(t.conn)
	if err == nil || !t.interrupted(large) {
		t.finishBlob(large)
		return err
	}
	last := len(t.bufs) - 1
	t.bufs[last] = slices.Clone(t.bufs[last])
	t.finishBlob(large) // from here on the call may be another's
	_, err = t.bufs.WriteTo(t.conn)
	return err
}

// interrupted reports whether a call whose blob is being written was abandoned.
func (t *transport) interrupted(cl *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cl.state == callWriting && cl.abandoned
}

// finishBlob marks a call's blob as not read any longer. The call is done if it was answered or
// abandoned meanwhile.
func (t *transport) finishBlob(cl *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cl.state != callWriting {
		return
	}
	cl.state = callSent
	switch {
	case cl.abandoned:
		_ = t.conn.SetWriteDeadline(time.Time{}) // see abandonLocked; if it fails, so does the next write
		t.inFlight.abandon(cl)
		t.finish(cl, nil)
	case cl.answered:
		t.deliver(cl, cl.err)
	}
}

// failConn closes the connection. Its calls fail, or are sent again on the next one. If the transport is closed all calls
// fail.
func (t *transport) failConn(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		if t.readErr != nil {
			why = t.readErr // the reader's end has also ended the write
		}
		t.mu.Unlock()
		closeConn(t.conn)
		<-t.reader.stopped
		t.mu.Lock()
		if isAnswer(t.readErr) {
			why = t.readErr
		}
		t.removeConn(withoutSource(why))
	}
	if t.closed {
		t.failAll()
	}
}

// removeConn handles that the connection has ended. mu is held.
func (t *transport) removeConn(why error) {
	wasReady, lost := t.isReady(), t.inFlight.removeAll()
	t.conn, t.readErr, t.setup = nil, nil, nil
	switch {
	case t.closed:
		why = errClosed
	case !wasReady:
		isStart := t.outage.seenAt.IsZero()
		if isAnswer(why) && isStart || t.dialer.failed() {
			t.dialFailed(why)
		}
		return
	case errors.Is(why, errSilent):
		t.dialer.failed()
	default:
		t.outage.seenAt = time.Now()
	}
	var again []*call
	for _, cl := range lost {
		if t.sendsAgain(cl, why) {
			cl.state, cl.sentAgain = callQueued, true
			again = append(again, cl)
		} else {
			t.finish(cl, exchangeError(why))
		}
	}
	t.queue = append(again, t.queue...)
}

// failAll fails the calls that are not in flight. mu is held.
func (t *transport) failAll() {
	if t.redial != nil {
		t.redial.Stop()
	}
	if t.spare != nil {
		closeConn(t.spare.conn)
		t.spare = nil
	}
	why := exchangeError(errClosed)
	for _, cl := range t.queue {
		t.finish(cl, why)
	}
	t.queue = nil
	for cl, timer := range t.delayed {
		timer.Stop()
		t.finish(cl, why)
	}
	clear(t.delayed)
}

// close fails all calls and waits for both goroutines.
func (t *transport) close() {
	t.mu.Lock()
	t.closed = true
	t.cancel()
	if t.conn != nil {
		closeConn(t.conn)
	}
	t.wakeWriter()
	t.mu.Unlock()
	<-t.stopped
	t.backs.Wait()
}
