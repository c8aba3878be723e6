package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hitline/hitline/lookup/api"
)

// Bounds of the pauses between attempts to reach a server: each is twice the one
// before, and half of it more or less by chance.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// dialer makes connections to one server, and spares it and the callers while it
// is away. Safe for concurrent use.
type dialer struct {
	open  func(ctx context.Context) (net.Conn, error)
	dials atomic.Int64 // connections made

	mu     sync.Mutex
	pauses *backoff.ExponentialBackOff
	failed error     // why the server is thought to be away, nil if it is not
	next   time.Time // no attempt before
}

// newDialer takes what api.SplitAddress does.
func newDialer(addr string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*dialer, error) {
	network, target, err := api.SplitAddress(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: address %w", ErrRequest, err)
	}
	return dialerTo(func(ctx context.Context) (net.Conn, error) {
		return dial(ctx, network, target)
	}), nil
}

func dialerTo(open func(ctx context.Context) (net.Conn, error)) *dialer {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier, pauses.MaxInterval, pauses.RandomizationFactor = firstPause, 2, lastPause, 0.5
	pauses.Reset()
	return &dialer{open: open, pauses: pauses}
}

// dial makes a connection, or fails at once if the last attempt has failed and
// its pause is not over. until, unless it is zero, bounds it beside ctx.
func (d *dialer) dial(ctx context.Context, until time.Time) (net.Conn, error) {
	begun := time.Now()
	if err := d.pausing(begun); err != nil {
		return nil, err
	}
	caller := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	nc, err := d.open(ctx)
	if err != nil {
		cause := ctx.Err()
		// One that had hardly any time says nothing about the server.
		if cause == nil || !errors.Is(cause, context.Canceled) && time.Since(begun) >= firstPause {
			d.fail(begun, err)
		}
		return nil, dialError(caller, cause, until, err)
	}
	d.dials.Add(1)
	return nc, nil
}

// dialError names the cause of a dial's failure as any call's: what ended it, if
// anything did, is the caller's context or the client's time.
func dialError(caller context.Context, cause error, until time.Time, err error) error {
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded) && !until.IsZero():
		return fmt.Errorf("%w: %v", timeoutOf(caller, until), err) //nolint:errorlint // err calls either time the context's
	case errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// pausing returns why no attempt is made now, nil if one is.
func (d *dialer) pausing(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil || !now.Before(d.next) {
		return nil
	}
	return fmt.Errorf("next attempt in %v: %w", d.next.Sub(now).Round(time.Millisecond), d.failed)
}

// fail notes that an attempt begun then has failed, or led to a connection that
// was lost before its first reply. Attempts that were made at the same time count
// as one.
func (d *dialer) fail(begun time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil && begun.Before(d.next) {
		return
	}
	if !lost(err) { // it was another call's time that ran out
		err = errors.New(err.Error())
	}
	d.failed = err
	d.next = time.Now().Add(d.pauses.NextBackOff())
}

// succeed notes that the server has answered.
func (d *dialer) succeed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = nil
	d.pauses.Reset()
}
