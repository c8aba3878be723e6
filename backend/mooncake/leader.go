package mooncake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hitline/hitline/backend"
)

const (
	// Bounds of the pauses between rounds: each is twice the one before, and half of
	// it more or less by chance.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
	// slowAfter questions in a row that time out have the leader doubted.
	slowAfter = 3
)

// leads is what is known of the leader, under the client's lock.
type leads struct {
	leader string        // its address, "" if there is none
	term   uint64        // counts leaders
	served bool          // it has answered a question
	slow   int           // questions in a row that have timed out
	round  chan struct{} // closed when the round ends, nil while there is none
	failed error         // why there is no leader
	next   time.Time     // of the next round, if there is no leader
	wake   chan struct{} // has the seeker begin a round
	pauses *backoff.ExponentialBackOff
}

func newLeads() leads {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier, pauses.MaxInterval, pauses.RandomizationFactor = firstPause, 2, lastPause, 0.5
	pauses.Reset()
	return leads{wake: make(chan struct{}, 1), pauses: pauses}
}

// whoLeads returns the leader's address and term. While a round is under way it
// waits; while nobody answers it fails at once.
func (c *Client) whoLeads(ctx context.Context) (addr string, term uint64, err error) {
	for {
		c.mu.Lock()
		addr, term, round, failed, next := c.leader, c.term, c.round, c.failed, c.next
		c.mu.Unlock()
		if addr != "" {
			return addr, term, nil
		}
		if round == nil {
			return "", 0, fmt.Errorf("mooncake: %w: next attempt in %v: %w", backend.ErrUnavailable, time.Until(next).Round(time.Millisecond), failed)
		}
		select {
		case <-round:
		case <-ctx.Done():
			return "", 0, fmt.Errorf("mooncake: %w: no master has answered yet: %w", backend.ErrUnavailable, ctx.Err())
		}
	}
}

// lose says that the leader of a term does not answer.
func (c *Client) lose(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != term || c.leader == "" {
		return
	}
	c.leader = ""
	c.closeIdle()
	c.seekAgain()
}

// count takes note of how a question has ended.
func (c *Client) count(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.slow = 0
		if !c.served {
			c.served = true
			c.pauses.Reset()
		}
	case timedOut(err):
		if c.slow++; c.slow >= slowAfter && c.leader != "" {
			c.seekAgain()
		}
	}
}

// suspect has the masters asked who leads; until one has answered the leader stays. An
// answer may come late, when there is none any longer: the seeker is at it then, and may
// be in a pause.
func (c *Client) suspect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != "" {
		c.seekAgain()
	}
}

// seekAgain has a round begin, if none is under way. c.mu is held, and the seeker does
// not pause between two rounds.
func (c *Client) seekAgain() {
	if c.round != nil || c.closed {
		return
	}
	c.round, c.slow = make(chan struct{}), 0
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// seek looks for the leader whenever it is asked to, and until it finds one.
func (c *Client) seek() {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		if !c.pace() {
			return
		}
		for !c.settle(c.askAll(c.ctx, c.doubted())) {
			if !c.sleep(time.Until(c.next)) { // next is written by this goroutine only
				return
			}
			c.mu.Lock()
			c.round = make(chan struct{})
			c.mu.Unlock()
		}
	}
}

// pace waits before a round if the leader of the last has not served anybody: it
// may be one that answers only that.
func (c *Client) pace() bool {
	c.mu.Lock()
	var pause time.Duration
	if c.term > 0 && !c.served {
		pause = c.pauses.NextBackOff()
	}
	c.mu.Unlock()
	return c.sleep(pause)
}

// doubted returns the leader that a round is to replace if another answers, "" if
// there is none.
func (c *Client) doubted() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

// sleep returns false if the client is closed meanwhile.
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

// settle ends a round with the connection to the leader, or with why there is none. It
// logs at its end: a log that is stuck must not keep questions waiting.
func (c *Client) settle(cn *conn, err error) (found bool) {
	tell := func() {}
	defer func() { tell() }()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.round)
	c.round = nil
	if err != nil {
		before := c.failed
		tell = func() { c.tellFailed(before, err) }
		c.leader, c.failed, c.next = "", err, time.Now().Add(c.pauses.NextBackOff())
		c.closeIdle()
		return false
	}
	if cn.addr != c.leader {
		c.closeIdle()
		c.term++
		c.leader, c.served = cn.addr, false
		addr, form := cn.addr, cn.form.String()
		tell = func() { c.cfg.Logger.Info("Mooncake leader found", "master", addr, "form", form) }
	}
	c.failed = nil
	cn.term = c.term
	c.keep(cn)
	return true
}

// tellFailed logs that nobody leads: once, and once more if it is found to be for a
// reason that does not go away. before is why the round before found nobody.
func (c *Client) tellFailed(before, err error) {
	hopeless := func(err error) bool { return errors.Is(err, ErrForm) || errors.Is(err, ErrNotMaster) }
	switch {
	case c.ctx.Err() != nil:
	case hopeless(err) && !hopeless(before):
		c.cfg.Logger.Error("no Mooncake master to talk with", "error", err)
	case before == nil:
		c.cfg.Logger.Warn("no Mooncake master answers", "error", err)
	}
}

// askAll asks all masters at once and returns a connection to the first that
// answers, the doubted one only if no other does. It waits for the end of all
// attempts.
func (c *Client) askAll(ctx context.Context, doubted string) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		asked sync.WaitGroup
		mu    sync.Mutex
		first *conn
		spare *conn
		why   = make([]error, len(c.cfg.Masters))
	)
	for i, addr := range c.cfg.Masters {
		asked.Go(func() {
			cn, err := c.dial(ctx, addr)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				why[i] = fmt.Errorf("%s: %w", addr, err)
			case first != nil:
				cn.close()
			case addr == doubted:
				spare = cn
			default:
				first = cn
				cancel()
			}
		})
	}
	asked.Wait()
	switch {
	case first == nil && spare == nil:
		return nil, joined(why)
	case first == nil:
		return spare, nil
	case spare != nil:
		spare.close()
	}
	return first, nil
}

// joined is several errors in one line.
type joined []error

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (j joined) Unwrap() []error { return j }
