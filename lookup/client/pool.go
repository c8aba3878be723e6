package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// errClosed is why a closed client does not answer.
var errClosed = fmt.Errorf("client is closed: %w", net.ErrClosed)

// pool keeps connections that serve one request at a time. Safe for concurrent
// use.
type pool struct {
	dialer *dialer
	inUse  chan struct{} // holds a token for each connection in use; its capacity bounds them
	ctx    context.Context
	cancel context.CancelFunc // ends ctx, by close

	mu     sync.Mutex
	idle   []*conn // the one last used is last
	open   map[*conn]struct{}
	closed bool
}

func newPool(d *dialer, size int) *pool {
	p := &pool{dialer: d, inUse: make(chan struct{}, size), open: map[*conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// get lends a connection, for the time until put, with an exchange begun.
func (p *pool) get(ctx context.Context, until time.Time) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, exchangeError(err)
	}
	if err := p.acquire(ctx, until); err != nil {
		return nil, fmt.Errorf("%w: waited for one of %d connections: %w", ErrNoAnswer, cap(p.inUse), err)
	}
	c, err := p.take(ctx, until)
	if err == nil {
		if err = c.begin(ctx, until); err == nil {
			return c, nil
		}
		c.end()
		p.drop(c)
	}
	<-p.inUse
	return nil, err
}

// acquire waits until fewer connections are in use than there may be.
func (p *pool) acquire(ctx context.Context, until time.Time) error {
	select {
	case p.inUse <- struct{}{}:
		return nil
	default:
	}
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case p.inUse <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late:
		return timeoutOf(ctx, until)
	}
}

// take returns an idle connection or a new one.
func (p *pool) take(ctx context.Context, until time.Time) (*conn, error) {
	for now := time.Now(); ; {
		c, err := p.pop()
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if !c.stale(now) {
			return c, nil
		}
		p.drop(c)
	}
	nc, err := p.dial(ctx, until)
	if err != nil {
		return nil, err
	}
	return p.adopt(nc)
}

// dial makes a connection, until the pool is closed.
func (p *pool) dial(ctx context.Context, until time.Time) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	nc, err := p.dialer.dial(ctx, until)
	if err != nil && p.ctx.Err() != nil {
		err = errClosed
	}
	return nc, err
}

// pop returns an idle connection, nil if there is none.
func (p *pool) pop() (*conn, error) {
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

// adopt makes a connection one of the pool's, in use.
func (p *pool) adopt(nc net.Conn) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = nc.Close()
		return nil, errClosed
	}
	c := newConn(nc)
	p.open[c] = struct{}{}
	return c, nil
}

// put gives back what get has lent. err is why the exchange failed, if that says
// that the connection is not to be used again.
func (p *pool) put(c *conn, err error) {
	c.end()
	switch {
	case c.replied && !c.noted:
		c.noted = true
		p.dialer.succeed()
	case !c.replied && lost(err):
		p.dialer.fail(time.Now(), err)
	}
	if err != nil || c.spoiled || !p.keep(c) {
		p.drop(c)
	}
	<-p.inUse
}

// lost tells whether an error is the server's fault, and not that of a caller who
// would not wait.
func lost(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, os.ErrDeadlineExceeded)
}

// keep makes a connection idle, unless the pool is closed.
func (p *pool) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.idle = append(p.idle, c)
	return true
}

// drop closes a connection that is not idle.
func (p *pool) drop(c *conn) {
	c.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// close cuts all connections, also those in use.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.cancel()
	p.idle = nil
	for c := range p.open {
		c.cut()
	}
	clear(p.open)
}
