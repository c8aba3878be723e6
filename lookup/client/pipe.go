package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/netproto"
)

// call is one request on its way through a pipe. While it is under way the pipe's
// mutex guards it.
type call struct {
	request
	state    callState
	left     bool   // its caller waits for nothing but that blob is let go
	answered bool   // while it is being written, so that it is done right after
	slot     uint32 // from writing on

	hit    uint64   // of a lookup
	frames [][]byte // of the reply to any other
	err    error

	done  chan struct{} // holds a token once the call is done; nil for an asynchronous one
	timer *time.Timer

	async *asyncCall // nil for one whose caller waits
}

type callState uint8

const (
	callQueued    callState = iota
	callPreparing           // its blob is being made; not in the queue yet
	callWriting             // the blob is being read
	callSent
	callDone
)

// slot is the place of a request under way: its number and turn are the
// request's id.
type slot struct {
	call *call // nil when free or when its caller has left
	turn uint32
	busy bool
}

// maxInFlight bounds the requests that are sent and not answered: as many as a
// server with a remote backend takes from one connection.
const maxInFlight = 1024

// pipe is a connection on which many requests are under way, matched to their
// replies by ids. One goroutine, run, owns it: it dials, writes and decides when a
// connection is lost. Each connection has a goroutine that reads replies, which
// the owner joins. Others only queue calls and leave them.
type pipe struct {
	dialer  *dialer
	timeout time.Duration // of dialling, and half of how long a server may be silent; 0 for no bound
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{}
	wake    chan struct{} // capacity 1: the owner, parked, has something to do

	mu          sync.Mutex
	queue       []*call
	slots       []slot
	free        []uint32
	conn        net.Conn  // set by the owner alone
	plain       bool      // conn is a socket: a write that was interrupted can go on
	broken      error     // why its reader has given it up
	since       time.Time // since when the server is silent though answers are due
	parked      bool
	interrupted bool // a write was, by a caller that leaves
	closed      bool

	calls, lists sync.Pool

	// of the owner alone:
	batched []*call
	head    []byte
	ends    []int
	parts   [][]byte
	bufs    net.Buffers
	joined  []byte // heads and blobs for a connection that is not plain

	reader replyReader
}

// replyReader is what the goroutine that reads has. The owner touches it only
// while there is none.
type replyReader struct {
	stopped chan struct{}
	in      []byte
	have    int
	frames  [][]byte
	replied bool
}

// newPipe starts a pipe. first is its connection, nil to dial when one is needed.
func newPipe(d *dialer, first net.Conn, timeout time.Duration) *pipe {
	p := &pipe{
		dialer: d, timeout: max(timeout, 0), conn: first, plain: isSocket(first),
		stopped: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	p.lists.New = func() any { return new(callList) }
	if first != nil {
		p.startReader(first)
	}
	go p.run()
	return p
}

// callList is a pooled list.
type callList struct{ list []*call }

func (p *pipe) getCallList() *callList { return p.lists.Get().(*callList) }

func (p *pipe) putCallList(l *callList) {
	clear(l.list)
	l.list = l.list[:0]
	p.lists.Put(l)
}

// getCall returns a pooled call to submit.
func (p *pipe) getCall(r request) *call {
	cl := p.calls.Get().(*call)
	cl.request = r
	return cl
}

// putCall returns a call to its pool.
func (p *pipe) putCall(cl *call) {
	*cl = call{done: cl.done, timer: cl.timer}
	p.calls.Put(cl)
}

// close fails all calls and joins the goroutine.
func (p *pipe) close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.wakeWriter()
	p.mu.Unlock()
	<-p.stopped
}

// wakeWriter sees to it that the owner looks at what there is to do.
func (p *pipe) wakeWriter() {
	if p.parked {
		p.parked = false
		p.wake <- struct{}{}
	}
}

// submit queues calls, nil ones left out. They fail at once when the pipe is
// closed.
func (p *pipe) submit(calls ...*call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cl := range calls {
		if cl != nil {
			p.enqueue(cl)
		}
	}
	if !p.closed {
		p.wakeWriter()
	}
}

func (p *pipe) enqueue(cl *call) {
	if p.closed {
		p.finish(cl, connectError(errClosed))
		return
	}
	p.queue = append(p.queue, cl)
}

// finish ends a call.
func (p *pipe) finish(cl *call, err error) {
	cl.state, cl.err = callDone, err
	if cl.async != nil {
		cl.async.completed(cl)
		return
	}
	cl.done <- struct{}{}
}

// await waits for a submitted call. It returns an error if the wait ends first;
// the call's own is in the call.
func (p *pipe) await(ctx context.Context, cl *call, until time.Time) error {
	select {
	case <-cl.done:
		return nil
	default:
	}
	var late <-chan time.Time
	if at, ok := ctx.Deadline(); !until.IsZero() && (!ok || until.Before(at)) {
		if cl.timer == nil {
			cl.timer = time.NewTimer(time.Until(until))
		} else {
			cl.timer.Reset(time.Until(until))
		}
		defer cl.timer.Stop()
		late = cl.timer.C
	}
	select {
	case <-cl.done:
		return nil
	case <-ctx.Done():
		return p.abandonCall(cl, ctx.Err())
	case <-late:
		return p.abandonCall(cl, os.ErrDeadlineExceeded)
	}
}

// abandonCall gives a call up and returns when its blob is no longer read, unless it is
// done.
func (p *pipe) abandonCall(cl *call, why error) error {
	p.mu.Lock()
	state := cl.state
	why = p.unanswered(why)
	p.abandon(cl)
	p.mu.Unlock()
	switch state {
	case callDone:
		<-cl.done
		return nil
	case callWriting:
		<-cl.done
	}
	return why
}

// unanswered names the error of a call whose time is up, or whose caller leaves.
func (p *pipe) unanswered(why error) error {
	if p.conn == nil {
		return connectError(why)
	}
	return exchangeError(why)
}

// dequeue ends those of the calls that have not been taken from the queue.
func (p *pipe) dequeue(calls []*call, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cl := range calls {
		if cl != nil && cl.state == callQueued {
			cl.left = true
		}
	}
	p.queue = slices.DeleteFunc(p.queue, func(cl *call) bool {
		if cl.left {
			p.finish(cl, why)
		}
		return cl.left
	})
}

// abandon lets go of a call whose answer nobody waits for. One that is being
// written is done when its blob is let go.
func (p *pipe) abandon(cl *call) {
	switch cl.state {
	case callQueued:
		if i := slices.Index(p.queue, cl); i >= 0 {
			p.queue = slices.Delete(p.queue, i, i+1)
		}
	case callSent:
		p.slots[cl.slot].call = nil
	case callWriting:
		cl.left = true
		if cl.async == nil && p.conn != nil && p.plain {
			p.interrupted = true
			_ = p.conn.SetWriteDeadline(longAgo)
		}
	}
}

// lookup makes a lookup and waits for it.
func (p *pipe) lookup(ctx context.Context, until time.Time, r request) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, exchangeError(err)
	}
	cl := p.getCall(r)
	defer p.putCall(cl)
	p.submit(cl)
	if err := p.await(ctx, cl, until); err != nil {
		return 0, err
	}
	return cl.hit, cl.err
}

// answer makes any other request and waits for its reply.
func (p *pipe) answer(ctx context.Context, until time.Time, r request) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, exchangeError(err)
	}
	cl := p.getCall(r)
	defer p.putCall(cl)
	p.submit(cl)
	if err := p.await(ctx, cl, until); err != nil {
		return nil, err
	}
	return cl.frames, cl.err
}

// run is the goroutine that owns the connection.
func (p *pipe) run() {
	defer close(p.stopped)
	for {
		goOn, err := p.next()
		if goOn && err == nil {
			err = p.send()
		}
		if err != nil {
			p.lose(err)
		}
		if !goOn {
			return
		}
	}
}

// next waits until there is something to send. It returns an error when the
// connection is lost, and false when the pipe is closed.
func (p *pipe) next() (goOn bool, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closed:
			return false, errClosed
		case p.broken != nil:
			return true, p.broken
		case len(p.queue) > 0 && p.available() > 0:
			return true, nil
		}
		p.parked = true
		p.mu.Unlock()
		<-p.wake
		p.mu.Lock()
	}
}

// available returns how many more requests may be under way.
func (p *pipe) available() int { return maxInFlight - p.inFlight() }

func (p *pipe) inFlight() int { return len(p.slots) - len(p.free) }

// send writes what is queued. An error means that the connection is lost.
func (p *pipe) send() error {
	runtime.Gosched() // whoever else is about to queue something comes along
	if p.conn == nil {
		return p.connect()
	}
	p.mu.Lock()
	p.load()
	p.interrupted = false
	err := p.conn.SetWriteDeadline(untilAfter(2 * p.timeout))
	p.mu.Unlock()
	if err == nil {
		if !p.plain {
			p.joinParts()
		}
		err = p.write()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allWritten() // also of a write that failed, whose reply may still come before lose
	return err
}

// joinParts copies the parts, so that no caller has to interrupt the write in order to leave:
// a TLS connection is of no use after that.
func (p *pipe) joinParts() {
	p.joined = p.joined[:0]
	for _, part := range p.parts {
		p.joined = append(p.joined, part...)
	}
	clear(p.parts)
	p.parts = append(p.parts[:0], p.joined)
	if cap(p.joined) > maxKeptBytes {
		p.joined = nil // parts has it until it is written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allWritten()
}

// maxJoined is how many bytes of blobs a batch has at most, beside one blob of any size,
// where they are copied.
const maxJoined = 1 << 20

// allWritten notes that all of the batch's blobs are let go.
func (p *pipe) allWritten() {
	for i, cl := range p.batched {
		if cl == nil {
			continue
		}
		p.batched[i] = nil
		p.written(cl)
	}
}

// written notes that a call's blob is let go.
func (p *pipe) written(cl *call) {
	cl.blob, cl.state = nil, callSent
	if cl.async != nil {
		cl.async.releaseBlob()
	}
	switch {
	case cl.answered && !cl.left:
		p.finish(cl, cl.err)
	case cl.left:
		p.slots[cl.slot].call, cl.state = nil, callDone
		if cl.async == nil {
			cl.done <- struct{}{}
		}
	}
}

// isSocket tells whether a connection is a socket itself, and not TLS or the like over
// one.
func isSocket(nc net.Conn) bool {
	_, ok := nc.(syscall.Conn)
	return ok
}

// connect dials. If that fails, so do all calls that are queued.
func (p *pipe) connect() error {
	nc, err := p.dialer.dial(p.ctx, untilAfter(p.timeout))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // what is queued fails for that, and not for the dial's end
		if err == nil {
			_ = nc.Close()
		}
		return nil
	}
	if err == nil {
		p.conn, p.plain = nc, isSocket(nc)
		p.startReader(nc)
		return nil
	}
	err = connectError(err)
	for _, cl := range p.queue {
		p.finish(cl, err)
	}
	clear(p.queue)
	p.queue = p.queue[:0]
	return nil
}

// load takes calls from the queue and encodes them.
func (p *pipe) load() {
	if p.inFlight() == 0 {
		p.since = time.Now()
	}
	p.batched = p.batched[:0]
	n, bytes := 0, 0
	for most := min(p.available(), window); n < len(p.queue) && len(p.batched) < most; n++ {
		cl := p.queue[n]
		if cl.async != nil && cl.async.late() {
			p.finish(cl, exchangeError(os.ErrDeadlineExceeded))
			continue
		}
		if bytes += len(cl.blob); !p.plain && bytes > maxJoined && len(p.batched) > 0 {
			break
		}
		p.batched = append(p.batched, cl)
	}
	p.queue = slices.Delete(p.queue, 0, n)
	p.head, p.ends = p.head[:0], p.ends[:0]
	var id [envelopeLen]byte
	for _, cl := range p.batched {
		cl.state, cl.slot = callWriting, p.allocSlot(cl)
		p.head = cl.appendHead(p.head, appendEnvelope(id[:0], cl.slot, p.slots[cl.slot].turn))
		p.ends = append(p.ends, len(p.head))
	}
	p.parts = p.parts[:0]
	begin := 0
	for i, cl := range p.batched {
		p.parts = append(p.parts, p.head[begin:p.ends[i]], cl.blob)
		begin = p.ends[i]
	}
}

// allocSlot gives a call a slot.
func (p *pipe) allocSlot(cl *call) uint32 {
	if len(p.free) == 0 {
		p.slots = append(p.slots, slot{call: cl, busy: true})
		return uint32(len(p.slots) - 1)
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	s := &p.slots[i]
	s.call, s.busy = cl, true
	s.turn++
	return i
}

// freeSlot frees a slot and returns its call, nil if its caller has left.
func (p *pipe) freeSlot(i uint32) *call {
	s := &p.slots[i]
	cl := s.call
	s.call, s.busy = nil, false
	p.free = append(p.free, i)
	return cl
}

// write writes parts and forgets them. Who leaves while his blob is written
// interrupts it; what is left of that blob is then copied.
func (p *pipe) write() error {
	defer clear(p.parts)
	p.bufs = p.parts
	for {
		_, err := p.bufs.WriteTo(p.conn)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !p.detach() {
			return err
		}
	}
}

// detach copies what is unwritten of the blobs whose callers have left, and lets
// them go. It returns false if nobody has interrupted the write.
func (p *pipe) detach() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.interrupted {
		return false
	}
	p.interrupted = false
	gone := len(p.parts) - len(p.bufs)
	for i, cl := range p.batched {
		if cl == nil || !cl.left || cl.async != nil {
			continue
		}
		if at := 2*i + 1 - gone; at >= 0 {
			p.bufs[at] = slices.Clone(p.bufs[at])
		}
		p.batched[i] = nil
		p.written(cl)
	}
	return p.conn.SetWriteDeadline(untilAfter(2*p.timeout)) == nil
}

// startReader starts the goroutine that reads from a new connection.
func (p *pipe) startReader(nc net.Conn) {
	r := &p.reader
	*r = replyReader{stopped: make(chan struct{}), in: make([]byte, 16<<10), frames: r.frames}
	go func() {
		defer close(r.stopped)
		err := p.receive(nc)
		p.mu.Lock()
		p.broken = err
		p.wakeWriter()
		p.mu.Unlock()
		_ = nc.Close() // so that a write ends too, for which lose knows the reason by now
	}()
}

// receive delivers replies until the connection is lost.
func (p *pipe) receive(nc net.Conn) error {
	r := &p.reader
	if err := nc.SetReadDeadline(untilAfter(2 * p.timeout)); err != nil {
		return err
	}
	for {
		if r.have == len(r.in) {
			r.in = append(r.in, make([]byte, len(r.in))...)
		}
		n, err := nc.Read(r.in[r.have:])
		r.have += n
		if n > 0 {
			if err := p.deliver(); err != nil {
				return err
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = p.checkSilence(nc)
		}
		if err != nil {
			return err
		}
	}
}

// checkSilence looks whether the server has been silent for too long, and if not,
// when to look again.
func (p *pipe) checkSilence(nc net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	at := now.Add(2 * p.timeout)
	if p.inFlight() > 0 {
		at = p.since.Add(2 * p.timeout)
	}
	if !at.After(now) {
		return fmt.Errorf("no reply for %v: %w", 2*p.timeout, os.ErrDeadlineExceeded)
	}
	return nc.SetReadDeadline(at)
}

// deliver gives the replies that have come to their calls.
func (p *pipe) deliver() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, at := &p.reader, 0
	for at < r.have {
		frames, used, err := netproto.ParseMessage(r.in[at:r.have], netproto.Limits{}, r.frames[:0])
		if errors.Is(err, netproto.ErrShort) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		r.frames = frames
		if err := p.match(frames); err != nil {
			return err
		}
		at += used
	}
	r.shift(at)
	p.since = time.Now()
	if len(p.queue) > 0 {
		p.wakeWriter() // there may be room again
	}
	return nil
}

// shift forgets the first bytes that were read.
func (r *replyReader) shift(n int) {
	if n == 0 {
		return
	}
	r.have = copy(r.in, r.in[n:r.have])
	if len(r.in) > keepReply && r.have < keepReply {
		r.in, r.frames = append(make([]byte, 0, keepReply), r.in[:r.have]...)[:keepReply], nil
	}
}

// match gives one reply to its call.
func (p *pipe) match(frames [][]byte) error {
	i, turn, body, ok := splitEnvelope(frames)
	if !ok || int(i) >= len(p.slots) || !p.slots[i].busy || p.slots[i].turn != turn {
		return errEnvelope
	}
	if !p.reader.replied {
		p.reader.replied = true
		p.dialer.succeed()
	}
	cl := p.freeSlot(i)
	if cl == nil {
		return nil // nobody waits any longer
	}
	var err error
	switch cl.tag {
	case netproto.TagLookup:
		cl.hit, err = readHit(body)
	case netproto.TagAnchors:
		cl.frames, err = cloneFrames(body), refusal(body)
	default:
		cl.frames, err = cloneFrames(body), readStatus(body)
	}
	if cl.state == callWriting { // its blob may still be read
		cl.answered, cl.err = true, err
		return nil
	}
	p.finish(cl, err)
	return nil
}

// lose gives the connection up: all that was under way fails, and when the pipe is
// closed what is queued too.
func (p *pipe) lose(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		if p.broken != nil {
			why = p.broken // which has ended the write as well
		}
		p.mu.Unlock()
		_ = p.conn.Close()
		<-p.reader.stopped
		p.mu.Lock()
	}
	switch {
	case p.closed:
		why = errClosed
	case p.conn == nil:
	default:
		if errors.Is(p.broken, ErrReply) {
			why = p.broken
		}
		if !p.reader.replied {
			p.dialer.fail(time.Now(), why)
		}
	}
	p.conn, p.broken = nil, nil
	why = exchangeError(why)
	for i := range p.slots {
		if !p.slots[i].busy {
			continue
		}
		if cl := p.freeSlot(uint32(i)); cl != nil {
			p.finish(cl, why)
		}
	}
	if !p.closed {
		return
	}
	for _, cl := range p.queue {
		p.finish(cl, why)
	}
	p.queue = nil
}

// bufferOf returns a pooled copy of a blob.
func bufferOf(blob []byte) *bufpool.Buffer {
	b := bufpool.Get()
	b.Grow(len(blob))
	b.B = append(b.B, blob...)
	return b
}
