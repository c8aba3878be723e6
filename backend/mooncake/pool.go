package mooncake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hitline/hitline/internal/ctxerr"
)

// acquire waits for a token, of which each request in flight has one. Large calls leave a quarter of them, and of several
// at least one, to the others. The caller must call release with the same large.
func (c *Client) acquire(ctx context.Context, large bool) error {
	began := time.Now()
	if err := c.tokens.Wait(ctx, 1, !large); err != nil {
		text := fmt.Sprintf("all %d connections were busy (backend.mooncake.conns): none was free", c.cfg.Conns)
		return wrapUnavailable(c.address(), ctxerr.Late(err, began, text))
	}
	return nil
}

// tryAcquire is acquire without waiting. It returns false if no token is free.
func (c *Client) tryAcquire(large bool) bool { return c.tokens.Admit(1, !large, 0) }

// release returns the token of acquire or tryAcquire.
func (c *Client) release(large bool) { c.tokens.Free(1, !large) }

// withConn runs do with a connection to the leader. If a reused connection turns out to be
// closed by the master, it runs do again with another one: so do must not change the store. If the master may
// have closed it before, the other one is new, and tells whether it is to the same process.
// The caller has called acquire.
func (c *Client) withConn(ctx context.Context, do func(*conn) error) error {
	for get := c.getConn; ; {
		cn, err := get(ctx)
		if err != nil {
			return err
		}
		reused := cn.reused
		err = c.runConn(ctx, cn, do)
		if err == nil {
			return nil
		}
		if !reused || !closedByPeer(err) {
			return wrapUnavailable(cn.addr, explain(err, true))
		}
		if cn.endedBefore(err) {
			get = c.newConn
		}
	}
}

// runConn runs do with cn and ends its ownership. If do panics, cn is closed: an answer may be half read.
func (c *Client) runConn(ctx context.Context, cn *conn, do func(*conn) error) (err error) {
	ended := false
	defer func() {
		if !ended {
			cn.close()
			return
		}
		c.putConn(cn, err)
	}()
	err = cn.run(ctx, do)
	ended = true
	return err
}

// withOwnConn runs do once, with a new connection that is closed afterwards.
func (c *Client) withOwnConn(ctx context.Context, do func(*conn) error) error {
	cn, err := c.dialLeader(ctx, false)
	if err != nil {
		return err
	}
	defer cn.close()
	if err := cn.run(ctx, do); err != nil {
		return wrapUnavailable(cn.addr, explain(err, true))
	}
	return nil
}

// getConn returns an idle connection or a new one. The caller owns it until putConn.
func (c *Client) getConn(ctx context.Context) (*conn, error) {
	if cn := c.popIdle(); cn != nil {
		return cn, nil
	}
	return c.dialLeader(ctx, true)
}

// newConn returns a new connection. The caller owns it until putConn.
func (c *Client) newConn(ctx context.Context) (*conn, error) { return c.dialLeader(ctx, false) }

// popIdle returns an idle connection, nil if there is none: the next one, in the order of dials, after
// the one that it has returned last. A master has its threads serve connections in turn, in the order
// in which they come. So the connections of one call are on different threads.
func (c *Client) popIdle() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return nil
	}
	after := func(cn *conn) uint32 { return cn.number - c.taken - 1 } // wraps around
	next := 0
	for i, cn := range c.idle {
		if after(cn) < after(c.idle[next]) {
			next = i
		}
	}
	cn := c.idle[next]
	cn.heard = false
	c.idle = slices.Delete(c.idle, next, next+1)
	c.taken = cn.number
	return cn
}

// dialLeader returns a new connection to the leader, or with reuse one that has become idle meanwhile.
// If the leader does not answer, it drops the leader and waits for the next one.
func (c *Client) dialLeader(ctx context.Context, reuse bool) (*conn, error) {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	for {
		addr, term, err := c.waitLeader(ctx)
		if err != nil {
			return nil, err
		}
		cn, err := c.dialInTurn(ctx, addr, term, reuse)
		if err == nil {
			return cn, nil
		}
		if cause := ctxerr.Of(ctx); cause != nil {
			c.recordResult(cause)
			return nil, wrapUnavailable(addr, ctxerr.Explain(cause, err))
		}
		c.dropLeader(term)
	}
}

// dialInTurn dials the leader of a term when no other dial to it is under way. With reuse it may return
// a connection that has become idle meanwhile.
func (c *Client) dialInTurn(ctx context.Context, addr string, term uint64, reuse bool) (*conn, error) {
	select {
	case c.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("another attempt to connect has not ended")
	}
	defer func() { <-c.dialing }()
	if reuse {
		if cn := c.popIdle(); cn != nil {
			return cn, nil
		}
	}
	cn, err := c.dialMaster(ctx, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adopt(cn, term)
	c.wakeFill()
	return cn, nil
}

// adopt numbers a new connection to the leader of a term. The caller holds c.mu.
func (c *Client) adopt(cn *conn, term uint64) {
	if term == c.term {
		c.recordIdentity(cn)
	}
	c.dialed++
	cn.term, cn.number = term, c.dialed
}

// wakeFill makes fillLoop dial the connections that are missing.
func (c *Client) wakeFill() {
	select {
	case c.fill <- struct{}{}:
	default:
	}
}

// fillLoop dials the connections that are missing, one after another, whenever one was dialled: so they
// are spread over the threads of the master. Each watchEvery it looks for idle ones that have ended, and dials those
// that are missing: so the end of a master is noticed when nobody asks. It returns when c is closed.
func (c *Client) fillLoop() {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for {
		select {
		case <-c.fill:
		case <-watch.C:
			c.closeEnded()
		case <-c.ctx.Done():
			return
		}
		for {
			addr, term, missing := c.missingConn()
			if !missing {
				break
			}
			cn, err := c.dialInTurn(c.ctx, addr, term, false)
			if err != nil {
				c.dropUnreachable(term)
				break
			}
			c.mu.Lock()
			c.addIdle(cn)
			c.mu.Unlock()
		}
	}
}

// missingConn reports whether there are fewer connections than there may be, as far as it is known
// how many are in use. It returns the leader to dial.
func (c *Client) missingConn() (addr string, term uint64, missing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing = c.leader != "" && !c.closed && len(c.idle)+int(c.tokens.Held()) < c.cfg.Conns
	return c.leader, c.term, missing
}

// putConn ends the ownership of cn after a request, whose error is err.
func (c *Client) putConn(cn *conn, err error) {
	c.recordResult(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !gaveUp(err) && cn.term == c.term && !cn.endedBefore(err) {
		c.newProcess()
	}
	c.addIdle(cn)
}

// addIdle adds a connection to the idle ones. It closes it if it is broken, of an earlier term, or one too many, or if the
// master has sent what nobody asked for. The caller holds c.mu.
func (c *Client) addIdle(cn *conn) {
	if cn.broken || cn.replies.Buffered() > 0 || c.closed || cn.term != c.term || c.leader == "" || len(c.idle) >= c.cfg.Conns {
		cn.close()
		return
	}
	cn.prepareIdle()
	c.idle = append(c.idle, cn)
}

// closeIdle closes the idle connections. The caller holds c.mu.
func (c *Client) closeIdle() {
	for _, cn := range c.idle {
		cn.close()
	}
	clear(c.idle)
	c.idle = c.idle[:0]
}
