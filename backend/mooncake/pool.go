package mooncake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/hitline/hitline/backend"
)

// ask lends do a connection to the leader, and a second one if the first had been
// idle and turns out to be closed: that says nothing about the master. do only
// reads.
func (c *Client) ask(ctx context.Context, do func(*conn) error) error {
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("mooncake: %w: all %d connections were busy: %w", backend.ErrUnavailable, cap(c.turns), ctx.Err())
	}
	defer func() { <-c.turns }()
	for {
		cn, err := c.get(ctx)
		if err != nil {
			return err
		}
		rested := cn.rested
		err = cn.during(ctx, do)
		c.put(cn, err)
		if err == nil {
			return nil
		}
		if !rested || !closedByPeer(err) {
			return unavailable(cn.addr, explain(err, true))
		}
	}
}

// apart gives do a connection to the leader that nobody else uses before or after.
func (c *Client) apart(ctx context.Context, do func(*conn) error) error {
	cn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer cn.close()
	if err := cn.during(ctx, do); err != nil {
		return unavailable(cn.addr, explain(err, true))
	}
	return nil
}

// get lends an idle connection or a new one.
func (c *Client) get(ctx context.Context) (*conn, error) {
	if cn := c.pop(); cn != nil {
		return cn, nil
	}
	return c.connect(ctx)
}

// pop returns an idle connection, nil if there is none.
func (c *Client) pop() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	cn := c.idle[n-1]
	c.idle[n-1] = nil
	c.idle = c.idle[:n-1]
	return cn
}

// connect makes a connection to the leader. One that does not answer is the leader no
// longer, and the next is waited for.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	for {
		addr, term, err := c.whoLeads(ctx)
		if err != nil {
			return nil, err
		}
		cn, err := c.dial(ctx, addr)
		if err == nil {
			cn.term = term
			return cn, nil
		}
		if cause := over(ctx); cause != nil {
			c.count(cause)
			return nil, unavailable(addr, fmt.Errorf("%w: %w", cause, err))
		}
		c.lose(term)
	}
}

// put takes back what get has lent. err is how the question ended.
func (c *Client) put(cn *conn, err error) {
	c.count(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if closedByPeer(err) && cn.term == c.term {
		c.closeIdle() // most likely they were closed with it
	}
	c.keep(cn)
}

// keep makes a connection idle, or closes it if it is not of use. c.mu is held.
func (c *Client) keep(cn *conn) {
	if cn.spoiled || c.closed || cn.term != c.term || c.leader == "" || len(c.idle) >= c.cfg.Conns {
		cn.close()
		return
	}
	cn.rest()
	c.idle = append(c.idle, cn)
}

// closeIdle closes the idle connections. c.mu is held.
func (c *Client) closeIdle() {
	for _, cn := range c.idle {
		cn.close()
	}
	clear(c.idle)
	c.idle = c.idle[:0]
}

// dial makes a connection to a master and finds the form that it takes. Go sets
// TCP_NODELAY on every TCP connection.
func (c *Client) dial(parent context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(parent, c.cfg.DialTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		if timedOut(err) || over(ctx) != nil {
			return nil, fmt.Errorf("no answer to the attempt to connect within %v", c.cfg.DialTimeout)
		}
		return nil, explain(err, false)
	}
	cn := &conn{net: nc, addr: addr}
	web := c.watchSilence(ctx, cancel, addr)
	err = cn.during(ctx, func(cn *conn) error { return cn.negotiate(c.cfg.Tenant) })
	speaksHTTP := web()
	if err != nil {
		cn.close()
		if speaksHTTP {
			return nil, errHTTP
		}
		return nil, c.explainSilence(parent, addr, explain(err, false))
	}
	return cn, nil
}

// watchSilence asks an address that has not answered for a while whether it speaks
// HTTP, and gives it up if it does. What it returns ends the watch and tells.
func (c *Client) watchSilence(ctx context.Context, giveUp func(), addr string) (stop func() bool) {
	web, done := false, make(chan struct{})
	timer := time.AfterFunc(min(silence, c.cfg.DialTimeout/2), func() {
		defer close(done)
		if web = speaksHTTP(ctx, addr); web {
			giveUp()
		}
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-done
		return web
	}
}

// silence is how long a master's first answer may take before it is doubted to be one.
const silence = 200 * time.Millisecond

// explainSilence says what a connection that was not answered in time leads to.
func (c *Client) explainSilence(ctx context.Context, addr string, err error) error {
	switch {
	case !timedOut(err) || over(ctx) != nil:
		return err
	case speaksHTTP(ctx, addr):
		return errHTTP
	}
	return fmt.Errorf("connected, but no answer within %v", c.cfg.DialTimeout)
}

// closedByPeer tells whether a connection failed because the other end is gone.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
