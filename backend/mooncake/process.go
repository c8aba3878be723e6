package mooncake

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/hitline/hitline/backend"
)

var _ backend.Backend = (*Client)(nil)

// process is what is known of the process that is the leader. Client.mu guards it.
type process struct {
	lease    time.Duration // that it has stated, 0 before
	asked    bool          // for the lease, and it has answered or is about to
	noProbes bool          // it does not know BatchProbeKey
	view     uint64        // version of the leader's view, 0 if it has none: without high availability
	viewed   bool          // it was asked for the view
	found    string        // a key that it has leased, "" for none
	foundAt  time.Time     // when
}

// unstatedLease is the lease that counts while none is stated. The service then remembers blocks for half of it at most.
const unstatedLease = 20 * time.Second

// newProcess begins a generation: there is another leader, or a connection is lost with a call on it, and the next one
// may be to another process at the same address. A connection that a call has given up is not: if they began one, a
// master that is slow under load would have nothing remembered, and the load would stay. Neither is one that had
// ended before the call, see conn.endedBefore: the next one tells whether it is to the same process. The caller holds
// c.mu.
func (c *Client) newProcess() {
	c.process = process{}
	c.generation.Add(1)
}

// Generation implements backend.Backend.
func (c *Client) Generation() uint64 { return c.generation.Load() }

// Failure implements backend.Backend: no master has answered in the latest round.
func (c *Client) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != "" || c.closed || c.lastErr == nil {
		return nil
	}
	return errNoMaster(c.lastErr)
}

// errNoMaster is the error of calls while there is no leader. err is that of the latest round.
func errNoMaster(err error) error {
	return fmt.Errorf("mooncake: %w: no master answers: %w", backend.ErrUnavailable, err)
}

// recordFound keeps a key that a call has just found, by which the process is known while it leases the key. It takes
// another one each eighth of a lease. The caller holds c.mu.
func (c *Client) recordFound(keys backend.Keys, found int) {
	if p := &c.process; found >= 0 && (p.found == "" || time.Since(p.foundAt) > p.leaseOr(unstatedLease)/8) {
		p.found, p.foundAt = string(keys.Append(nil, found)), time.Now()
	}
}

// leaseOr returns the lease that was stated, or else lease.
func (p *process) leaseOr(lease time.Duration) time.Duration {
	if p.lease > 0 {
		lease = p.lease
	}
	return lease
}

// identityQuestion is what a new connection to the leader's address asks, to tell whether the same process answers.
type identityQuestion struct {
	key  string // that the process has leased a moment ago, "" for none
	view bool   // the version of the leader's view
}

// identity is the answer.
type identity struct {
	question identityQuestion
	keyGone  bool
	view     uint64
}

// identityQuestionFor returns what a new connection to an address asks. A key is asked for until three quarters of its
// lease are over: a block that was found before that is not remembered any longer.
func (c *Client) identityQuestionFor(addr string) (q identityQuestion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.process
	if addr == c.lastLeader && time.Since(p.foundAt) < p.leaseOr(unstatedLease)*3/4 {
		q.key = p.found
	}
	q.view = addr != c.lastLeader || !p.viewed || p.view != 0
	return q
}

// askView asks for the version of the leader's view. It is 0 without high availability.
func (c *conn) askView() error {
	c.beginRequest(fnPing)
	c.out = appendPing(c.out)
	body, err := c.roundTrip(maxErrorReply)
	if rpc := (*rpcError)(nil); errors.As(err, &rpc) {
		return nil // it has none
	}
	if err == nil {
		c.identity.view = parseView(body)
	}
	return err
}

// recordIdentity begins a generation if a new connection to the leader is to another process than the one before.
// If no key was asked for, nothing that was found is still remembered. In any case the lease is asked for again: a
// process that was restored from a snapshot has the keys, and may state another. The caller holds c.mu.
func (c *Client) recordIdentity(cn *conn) {
	p, is := &c.process, &cn.identity
	if is.keyGone || is.question.view && p.viewed && is.view != p.view {
		c.newProcess()
	}
	p.asked, p.noProbes = false, false
	if is.question.view {
		p.view, p.viewed = is.view, true
	}
}

// recordDialFailure begins a generation if no connection to the leader's address can be made: the process is gone, or
// does not speak as it did. An attempt that ended for want of time says nothing.
func (c *Client) recordDialFailure(addr string, connected bool, err error) {
	if !connected && !errors.Is(err, syscall.ECONNREFUSED) || gaveUp(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr == c.lastLeader {
		c.newProcess()
	}
}

// watchEvery is how often idle connections are looked at, and missing ones dialled.
const watchEvery = 250 * time.Millisecond

// closeEnded closes the idle connections that the master has ended.
func (c *Client) closeEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.idle[:0]
	for _, cn := range c.idle {
		if cn.ended() {
			cn.close()
		} else {
			live = append(live, cn)
		}
	}
	clear(c.idle[len(live):])
	c.idle = live
}

// dropUnreachable drops the leader of a term, which could not be dialled, unless there are other connections to it.
func (c *Client) dropUnreachable(term uint64) {
	c.mu.Lock()
	others := len(c.idle) > 0 || c.tokens.Held() > 0
	c.mu.Unlock()
	if !others && c.ctx.Err() == nil {
		c.dropLeader(term)
	}
}
