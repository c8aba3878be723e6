package mooncake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/admission"
)

// Client is a backend over a Mooncake store. It is safe for concurrent use.
type Client struct {
	backend.Plain
	cfg       Config
	ctx       context.Context // ends when Close begins
	cancel    context.CancelFunc
	tokens    *admission.Admission // of the requests in flight
	dialing   chan struct{}        // holds an element while a connection to the leader is dialled
	fill      chan struct{}        // makes fillLoop dial; capacity 1
	discovery sync.WaitGroup
	calls     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	closed bool
	idle   []*conn // connections of the current term, in no order
	dialed uint32  // number of connections so far
	taken  uint32  // number of the one that was last taken from idle
	leaderState
	process     process
	leaseLogged uint64 // the last term whose leader's lease was logged as unknown

	generation atomic.Uint64 // of processes: see newProcess
}

var _ backend.Backend = (*Client)(nil)

// New returns a client of cfg. The client looks for the leader in the background: New does
// not wait for a master, and does not fail if none runs. Its errors wrap api.ErrConfig.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, tokens: admission.New(int64(cfg.Conns)), leaderState: newLeaderState(),
		dialing: make(chan struct{}, 1), fill: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.startRound()
	c.discovery.Go(c.discoverLoop)
	c.discovery.Go(c.fillLoop)
	return c, nil
}

// Name returns "mooncake".
func (c *Client) Name() string { return "mooncake" }

// String returns "mooncake at " and the leader's address, or those of all masters.
func (c *Client) String() string { return "mooncake at " + c.address() }

// Exists asks the leader for keys. An answer is 1 if the key is present, 0 if it is absent,
// and negative if the store has an error for that key. Present keys are leased for reading. If an
// absence ends the hit, it leaves out the keys that no longer matter and that it has not begun to ask
// for.
//
// With peek a master of v0.3.14 or later leases none.
func (c *Client) Exists(ctx context.Context, keys backend.Keys, peek bool) ([]int, error) {
	if keys.Len() == 0 {
		return nil, nil
	}
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	answers, err := c.exist(ctx, keys, peek)
	if err != nil {
		return nil, c.explainClosed(err)
	}
	if !peek {
		c.learn(keys, answers)
	}
	return answers, nil
}

// commonError returns the error of the whole store that replaces every answer. It
// returns 0 if there is none.
func commonError(answers []int) int {
	code := answers[0]
	switch code {
	case storeInvalidParams, storeNotServing, storeNotInMode, storeNoTenant:
	default:
		return 0
	}
	for _, a := range answers {
		if a != code {
			return 0
		}
	}
	return code
}

// Store returns backend.ErrReadOnly: only engines store blocks, together with their data.
func (c *Client) Store(context.Context, []string) error {
	return fmt.Errorf("%w: only the engines put blocks into a Mooncake store", backend.ErrReadOnly)
}

// Evict returns backend.ErrReadOnly: the master evicts by itself.
func (c *Client) Evict(context.Context, []string) error {
	return fmt.Errorf("%w: a Mooncake store evicts blocks by itself", backend.ErrReadOnly)
}

// CheckReset returns backend.ErrReadOnly without Config.AllowReset.
func (c *Client) CheckReset() error {
	if c.cfg.AllowReset {
		return nil
	}
	return fmt.Errorf("%w: a reset would empty a Mooncake store under all its engines: set backend.mooncake.allow_reset to allow it", backend.ErrReadOnly)
}

// Reset removes every key of the tenant, as the reference's reset does. Without
// Config.AllowReset it returns backend.ErrReadOnly. It dials a connection of its own, since
// the master walks the whole store. Once it has been sent it goes on when ctx ends, until the master has
// answered: the master cannot be stopped.
func (c *Client) Reset(ctx context.Context) error {
	if err := c.CheckReset(); err != nil {
		return err
	}
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	cn, err := c.dialLeader(ctx, false)
	if err != nil {
		return c.explainClosed(err)
	}
	defer cn.close()
	sent, cancel := context.WithTimeout(c.ctx, maxResetTime)
	defer cancel()
	var removed int64
	err = cn.run(sent, func(cn *conn) (err error) {
		removed, err = cn.removeAll(c.cfg.Tenant)
		return err
	})
	if err != nil {
		return c.explainClosed(wrapUnavailable(cn.addr, explain(err, true)))
	}
	c.cfg.Logger.Info("Mooncake store emptied", "keys", removed, "tenant", c.cfg.Tenant)
	return nil
}

// maxResetTime bounds the wait for the answer to a reset.
const maxResetTime = 5 * time.Minute

// Close makes all calls fail, waits for them and closes the connections. It may be called
// twice.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.calls.Wait()
	c.discovery.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle()
	return nil
}

// beginCall counts a call in c.calls: the caller must call c.calls.Done. After Close it returns errClosed. Close ends
// a call by closing its connection. A call that may wait without one needs untilClosed meanwhile.
func (c *Client) beginCall() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.calls.Add(1)
	return nil
}

// untilClosed returns a context that also ends when Close begins. The caller must call cancel.
func (c *Client) untilClosed(ctx context.Context) (open context.Context, cancel context.CancelFunc) {
	open, end := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, end)
	return open, func() { stop(); end() }
}

// explainClosed returns errClosed for a call that failed because of Close, else err.
func (c *Client) explainClosed(err error) error {
	if c.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed)) {
		return errClosed
	}
	return err
}
