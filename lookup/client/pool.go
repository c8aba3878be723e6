package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// pool keeps connections that serve one exchange at a time. It is safe for concurrent use.
type pool struct {
	dialer *dialer
	inUse  chan struct{} // a place for each connection in use; its capacity bounds them
	ctx    context.Context
	cancel context.CancelFunc // called by close, ends ctx

	mu     sync.Mutex
	idle   []*conn            // the most recently used is last
	open   map[*conn]struct{} // all connections, idle and in use
	closed bool
}

func newPool(d *dialer, size int) *pool {
	p := &pool{dialer: d, inUse: make(chan struct{}, size), open: map[*conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// get returns a connection with an exchange begun. The caller owns it until put.
func (p *pool) get(ctx context.Context, deadline time.Time) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, exchangeError(err)
	}
	if err := p.acquirePlace(ctx, deadline); err != nil {
		return nil, fmt.Errorf("%w: waited for one of %d connections: %w", ErrNoAnswer, cap(p.inUse), err)
	}
	c, err := p.idleOrDial(ctx, deadline)
	if err == nil {
		if err = c.beginExchange(ctx, deadline); err == nil {
			return c, nil
		}
		c.endExchange()
		p.remove(c)
	}
	<-p.inUse
	return nil, err
}

// acquirePlace waits for a place in inUse.
func (p *pool) acquirePlace(ctx context.Context, deadline time.Time) error {
	select {
	case p.inUse <- struct{}{}:
		return nil
	default:
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case p.inUse <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-expired:
		return timeoutError(ctx, deadline)
	}
}

// idleOrDial returns an idle connection that is not stale, or dials one.
func (p *pool) idleOrDial(ctx context.Context, deadline time.Time) (*conn, error) {
	for now := time.Now(); ; {
		c, err := p.popIdle()
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if !c.stale(now) {
			return c, nil
		}
		p.remove(c)
	}
	nc, err := p.dial(ctx, deadline)
	if err != nil {
		return nil, err
	}
	return p.add(nc)
}

// dial makes a connection. The pool's close interrupts it.
func (p *pool) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	nc, err := p.dialer.dial(ctx, deadline)
	if err != nil && p.ctx.Err() != nil {
		err = errClosed
	}
	return nc, err
}

// popIdle returns the most recently used idle connection, nil if there is none.
func (p *pool) popIdle() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c, nil
}

// add adds a new connection to the pool, in use.
func (p *pool) add(nc net.Conn) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		closeConn(nc)
		return nil, errClosed
	}
	c := newConn(nc)
	c.instances = p.dialer.instances
	p.open[c] = struct{}{}
	return c, nil
}

// put returns a connection to the pool. If err, the error of its exchange, is not nil, the
// connection is closed.
func (p *pool) put(c *conn, err error) {
	c.endExchange()
	switch {
	case c.replied && !c.reported:
		c.reported = true
		p.dialer.recordSuccess()
	case !c.replied && isConnError(err):
		p.dialer.recordFailure(time.Now(), err)
	}
	if err != nil || c.unusable || !p.putIdle(c) {
		p.remove(c)
	}
	<-p.inUse
}

// putIdle makes a connection idle. It returns false if the pool is closed.
func (p *pool) putIdle(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.idle = append(p.idle, c)
	return true
}

// remove closes a connection that is not idle and removes it from the pool.
func (p *pool) remove(c *conn) {
	c.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// close closes all connections, also those in use.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.cancel()
	p.idle = nil
	for c := range p.open {
		c.close()
	}
	clear(p.open)
}
