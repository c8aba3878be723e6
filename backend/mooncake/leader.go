package mooncake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hitline/hitline/internal/ctxerr"
)

const (
	// minRoundDelay and maxRoundDelay bound the delay between rounds. It doubles from round to
	// round, and varies randomly by half of it.
	minRoundDelay = 10 * time.Millisecond
	maxRoundDelay = time.Second
	// maxTimeouts is the number of timeouts in a row after which a round rechecks the leader.
	maxTimeouts = 3
)

// leaderState is the part of Client about the leader. Client.mu guards it.
type leaderState struct {
	leader     string        // address, "" if there is none
	lastLeader string        // the latest one, also if there is none now
	term       uint64        // number of leaders found so far
	served     bool          // the leader has answered a request
	timeouts   int           // requests in a row that timed out
	round      chan struct{} // closed when the round ends, nil if none runs
	lastErr    error         // of the latest round, nil if it found a leader
	nextRound  time.Time     // start of the next round, if there is no leader; written by discoverLoop only
	wake       chan struct{} // makes discoverLoop start a round; capacity 1
	delays     *backoff.ExponentialBackOff
}

func newLeaderState() leaderState {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.Multiplier, delays.MaxInterval, delays.RandomizationFactor = minRoundDelay, 2, maxRoundDelay, 0.5
	delays.Reset()
	return leaderState{wake: make(chan struct{}, 1), delays: delays}
}

// waitLeader returns the leader's address and term. It waits while a round runs. If there is
// no leader and no round, it fails at once.
func (c *Client) waitLeader(ctx context.Context) (addr string, term uint64, err error) {
	began := time.Now()
	for {
		c.mu.Lock()
		addr, term, round, lastErr, closed := c.leader, c.term, c.round, c.lastErr, c.closed
		c.mu.Unlock()
		if addr != "" {
			return addr, term, nil
		}
		if closed {
			return "", 0, errClosed
		}
		if round == nil {
			return "", 0, errNoMaster(lastErr)
		}
		select {
		case <-round:
		case <-ctx.Done():
			return "", 0, wrapUnavailable(c.address(), ctxerr.Late(ctx.Err(), began, "no master has answered"))
		}
	}
}

// dropLeader removes the leader of a term, which cannot be dialled, and starts a round.
func (c *Client) dropLeader(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != term || c.leader == "" {
		return
	}
	c.leader = ""
	c.closeIdle()
	c.startRound()
}

// recordResult records the error of a request, nil if it succeeded.
func (c *Client) recordResult(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.timeouts = 0
		if !c.served {
			c.served = true
			c.delays.Reset()
		}
	case isTimeout(err):
		if c.timeouts++; c.timeouts >= maxTimeouts && c.leader != "" {
			c.startRound()
		}
	}
}

// recheckLeader starts a round and keeps the leader until the round ends. If there is no
// leader, it does nothing: discoverLoop runs rounds then, or waits between two.
func (c *Client) recheckLeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != "" {
		c.startRound()
	}
}

// startRound wakes discoverLoop, unless a round runs or c is closed. The caller holds c.mu.
// discoverLoop must not be waiting between two rounds.
func (c *Client) startRound() {
	if c.round != nil || c.closed {
		return
	}
	c.round, c.timeouts = make(chan struct{}), 0
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// discoverLoop waits for startRound, then runs rounds until one finds a leader. It returns
// when c is closed.
func (c *Client) discoverLoop() {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		if !c.waitBeforeRound() {
			return
		}
		for !c.finishRound(c.dialMasters(c.ctx, c.currentLeader())) {
			if !c.sleep(time.Until(c.nextRound)) { // only this goroutine writes nextRound
				return
			}
			c.mu.Lock()
			c.round = make(chan struct{})
			c.mu.Unlock()
		}
	}
}

// waitBeforeRound waits before a round if the last leader has answered no request: such a
// master may answer only the negotiation. It returns false if c is closed.
func (c *Client) waitBeforeRound() bool {
	c.mu.Lock()
	var delay time.Duration
	if c.term > 0 && !c.served {
		delay = c.delays.NextBackOff()
	}
	c.mu.Unlock()
	return c.sleep(delay)
}

// currentLeader returns the address of the leader, "" if there is none.
func (c *Client) currentLeader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

// address returns the leader's address, or those of all masters.
func (c *Client) address() string { return cmp.Or(c.currentLeader(), strings.Join(c.cfg.Masters, ",")) }

// sleep waits for d. It returns false if c is closed meanwhile.
func (c *Client) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// finishRound ends a round: with a connection to the leader, or with the error of the round.
// It logs after it has unlocked c.mu, so that a handler that blocks delays no call.
func (c *Client) finishRound(cn *conn, err error) (found bool) {
	logResult := func() {}
	defer func() { logResult() }()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.round)
	c.round = nil
	if err != nil {
		before := c.lastErr
		logResult = func() { c.logNoLeader(before, err) }
		c.leader, c.lastErr, c.nextRound = "", err, time.Now().Add(c.delays.NextBackOff())
		c.closeIdle()
		return false
	}
	if cn.addr != c.leader {
		c.closeIdle()
		c.term++
		if cn.addr != c.lastLeader {
			c.newProcess()
		}
		c.leader, c.lastLeader, c.served = cn.addr, cn.addr, false
		addr, form := cn.addr, cn.form.String()
		logResult = func() { c.cfg.Logger.Info("Mooncake leader found", "master", addr, "form", form) }
	}
	c.lastErr = nil
	c.adopt(cn, c.term)
	c.addIdle(cn)
	c.wakeFill()
	return true
}

// logNoLeader logs that a round found no leader: once, and once more as an error when the
// reason turns out to be permanent. before is the error of the round before.
func (c *Client) logNoLeader(before, err error) {
	permanent := func(err error) bool { return errors.Is(err, errForm) || errors.Is(err, errNotMaster) }
	switch {
	case c.ctx.Err() != nil:
	case permanent(err) && !permanent(before):
		c.cfg.Logger.Error("no Mooncake master to talk with", "error", err)
	case before == nil:
		c.cfg.Logger.Warn("no Mooncake master answers", "error", err)
	}
}

// dialMasters dials all masters at once, a name at each of its addresses of one family, and returns a
// connection to the first that answers. It returns one to current only if no other master answers. It
// returns when all attempts have ended.
func (c *Client) dialMasters(ctx context.Context, current string) (*conn, error) {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	var (
		dials    sync.WaitGroup
		mu       sync.Mutex // guards first and fallback
		first    *conn
		fallback *conn                                 // to current
		errs     = make([][]error, len(c.cfg.Masters)) // of the addresses of each; guarded by mu
	)
	try := func(i int, addr string, answered *bool) {
		cn, err := c.dialMaster(ctx, addr)
		mu.Lock()
		defer mu.Unlock()
		*answered = *answered || err == nil
		switch {
		case err != nil:
			if master := c.cfg.Masters[i]; master != addr {
				addr = master + " at " + addr
			}
			errs[i] = append(errs[i], fmt.Errorf("%s: %w", addr, err))
		case first != nil || addr == current && fallback != nil:
			cn.close()
		case addr == current:
			fallback = cn
		default:
			first = cn
			cancel()
		}
	}
	for i, master := range c.cfg.Masters {
		dials.Go(func() {
			families, err := c.resolve(ctx, master, current)
			if err != nil {
				mu.Lock()
				errs[i] = []error{fmt.Errorf("%s: %w", master, err)}
				mu.Unlock()
			}
			for answered := false; len(families) > 0 && !answered; families = families[1:] {
				var family sync.WaitGroup
				for _, addr := range families[0] {
					family.Go(func() { try(i, addr, &answered) })
				}
				family.Wait()
			}
		})
	}
	dials.Wait()
	switch {
	case first == nil && fallback == nil:
		return nil, joinedErrors(slices.Concat(errs...))
	case first == nil:
		return fallback, nil
	case fallback != nil:
		fallback.close()
	}
	return first, nil
}
