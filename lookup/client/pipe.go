package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// pipe is a connection with many requests in flight, matched to their replies by ids.
//
// The goroutine run, its owner, dials, writes and closes the connection. Each connection
// has a second goroutine that reads replies; the owner waits for its end. Callers only
// queue calls and abandon them.
type pipe struct {
	dialer  *dialer
	timeout time.Duration // of dialing, and half of what checkSilence allows; 0: no bound
	ctx     context.Context
	cancel  context.CancelFunc // called by close, ends ctx
	stopped chan struct{}      // closed when run has returned
	wake    chan struct{}      // capacity 1; a token wakes the parked owner

	mu          sync.Mutex
	queue       []*call   // not written yet, in order
	slots       []slot    // of the requests in flight
	free        []uint32  // indexes of the slots that are not in use
	conn        net.Conn  // nil if there is none; set by the owner alone
	resumable   bool      // conn is a socket, so an interrupted write can continue
	readErr     error     // why the reader of conn ended, nil while it runs
	silentSince time.Time // the last reply, or the first request after there was none
	parked      bool      // the owner waits for wake
	interrupted bool      // an abandoned call has interrupted the write
	instance    *call     // newInstanceCall's, to be written first on conn; nil for none
	closed      bool

	calls, lists sync.Pool // of *call and *callList

	// of the owner alone:
	writing []*call     // the calls of the write in progress, nil once finished
	head    []byte      // their heads
	ends    []int       // where each head ends
	parts   [][]byte    // a head and a blob for each; the backing array of bufs
	bufs    net.Buffers // what is not written yet
	joined  []byte      // copy of parts if the connection is not resumable

	reader replyReader
}

// newPipe starts a pipe over the connection first. If that is nil, it dials when a request
// is queued.
func newPipe(d *dialer, first net.Conn, timeout time.Duration) *pipe {
	p := &pipe{
		dialer: d, timeout: max(timeout, 0), conn: first, resumable: isSocket(first),
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

// isSocket reports whether a connection is a socket, and not TLS or the like over one.
func isSocket(nc net.Conn) bool {
	_, ok := nc.(syscall.Conn)
	return ok
}

// run is the owner's goroutine. It returns after close.
func (p *pipe) run() {
	defer close(p.stopped)
	for {
		open, err := p.awaitWork()
		if open && err == nil {
			err = p.writeQueued()
		}
		if err != nil {
			p.failConn(err)
		}
		if !open {
			return
		}
	}
}

// awaitWork waits until a queued call can be written. It returns an error if the connection
// has failed, and false if the pipe is closed.
func (p *pipe) awaitWork() (open bool, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closed:
			return false, errClosed
		case p.readErr != nil:
			return true, p.readErr
		case len(p.queue) > 0 && p.available() > 0:
			return true, nil
		}
		p.parked = true
		p.mu.Unlock()
		<-p.wake
		p.mu.Lock()
	}
}

// wakeWriter wakes the owner if it is parked. mu is held.
func (p *pipe) wakeWriter() {
	if p.parked {
		p.parked = false
		p.wake <- struct{}{}
	}
}

// connect dials. If that fails, all queued calls fail.
func (p *pipe) connect() error {
	nc, err := p.dialer.dial(p.ctx, deadlineAfter(p.timeout))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // failConn fails what is queued, with errClosed
		if err == nil {
			closeConn(nc)
		}
		return nil
	}
	if err == nil {
		p.conn, p.resumable = nc, isSocket(nc)
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

// failConn closes the connection and fails the calls in flight. If the pipe is closed, it
// also fails those in the queue.
func (p *pipe) failConn(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		if p.readErr != nil {
			why = p.readErr // the reader's end has also ended the write
		}
		p.mu.Unlock()
		closeConn(p.conn)
		<-p.reader.stopped
		p.mu.Lock()
	}
	switch {
	case p.closed:
		why = errClosed
	case p.conn == nil:
	default:
		if errors.Is(p.readErr, ErrReply) {
			why = p.readErr
		}
		if !p.reader.replied {
			p.dialer.recordFailure(time.Now(), why)
		}
	}
	p.conn, p.readErr = nil, nil
	why = exchangeError(why)
	for i := range p.slots {
		if !p.slots[i].inUse {
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

// close fails all calls and waits for both goroutines.
func (p *pipe) close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	if p.conn != nil {
		closeConn(p.conn)
	}
	p.wakeWriter()
	p.mu.Unlock()
	<-p.stopped
}
