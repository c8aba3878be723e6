package mooncake

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hitline/hitline/backend"
)

// Client is a backend over a Mooncake store. Safe for concurrent use.
type Client struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	turns  chan struct{} // holds a token for each question under way
	seeker sync.WaitGroup
	calls  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	idle   []*conn // to the leader; the one last used is last
	leads
}

var _ backend.Backend = (*Client)(nil)

// New returns a client, which looks for the leader by itself: it does not wait for
// a master, nor fail if there is none yet. It fails if cfg makes no sense.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, turns: make(chan struct{}, cfg.Conns), leads: newLeads()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.seekAgain()
	c.seeker.Go(c.seek)
	return c, nil
}

// Name returns "mooncake".
func (c *Client) Name() string { return "mooncake" }

// Exists asks the leader for keys: 1 is present, 0 absent, a negative number is the
// error that the store has for a key. What is present is leased for reading.
func (c *Client) Exists(ctx context.Context, keys []string) ([]int, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	answers := make([]int, len(keys))
	if err := c.ask(ctx, func(cn *conn) error { return cn.exist(keys, c.cfg.Tenant, answers) }); err != nil {
		return nil, c.blame(err)
	}
	if code := commonError(answers); code != 0 {
		if code == storeNotServing || code == storeNotInMode {
			c.suspect()
		}
		return nil, notServing(code)
	}
	return answers, nil
}

// commonError returns the error that stands in place of every answer if it is one
// of the whole store, not of a key; else 0.
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

// Store refuses: a block has no meaning without its data, which engines put.
func (c *Client) Store(context.Context, []string) error {
	return fmt.Errorf("%w: only the engines put blocks into a Mooncake store", backend.ErrReadOnly)
}

// Evict refuses: the master evicts by itself.
func (c *Client) Evict(context.Context, []string) error {
	return fmt.Errorf("%w: a Mooncake store evicts blocks by itself", backend.ErrReadOnly)
}

// Reset removes every key of the tenant, as the reference's reset does, if
// Config.AllowReset allows it. It uses a connection of its own, since it walks the
// whole store.
func (c *Client) Reset(ctx context.Context) error {
	if !c.cfg.AllowReset {
		return fmt.Errorf("%w: a reset would empty a Mooncake store under all its engines, and is not allowed here", backend.ErrReadOnly)
	}
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var removed int64
	err = c.apart(ctx, func(cn *conn) (err error) {
		removed, err = cn.removeAll(c.cfg.Tenant)
		return err
	})
	if err != nil {
		return c.blame(err)
	}
	c.cfg.Logger.Info("Mooncake store emptied", "keys", removed, "tenant", c.cfg.Tenant)
	return nil
}

// Close cuts the calls under way, which fail, and waits for their end.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.calls.Wait()
	c.seeker.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle()
	return nil
}

// enter begins a call: its context ends with the client, too.
func (c *Client) enter(ctx context.Context) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, errClosed
	}
	c.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { stop(); cancel(); c.calls.Done() }, nil
}

// blame makes a call that Close has cut say so, and not that its caller cancelled.
func (c *Client) blame(err error) error {
	if c.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errClosed
	}
	return err
}
