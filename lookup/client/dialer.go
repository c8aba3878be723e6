package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hitline/hitline/lookup/api"
)

// The backoff after a failed attempt begins at minBackoff, doubles up to maxBackoff, and is
// randomized by half.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// dialer makes connections to one server, with a backoff while it cannot be reached. It is
// safe for concurrent use.
type dialer struct {
	open  func(ctx context.Context) (net.Conn, error)
	dials atomic.Int64 // connections made

	token       tokenFunc                // nil for none
	description []byte                   // of the pool, sent on each connection; nil for none
	pool        atomic.Pointer[api.Pool] // of the last reply to it, nil before
	instances   *instanceWatch           // nil without WithOnInstance

	mu          sync.Mutex
	backoff     *backoff.ExponentialBackOff
	lastErr     error     // of the last attempt, nil if the server has answered since
	nextAttempt time.Time // the end of the backoff, valid if lastErr is not nil
}

// dialerFor returns a dialer for an address, or ErrRequest if api.SplitAddress refuses it.
func dialerFor(addr string, dial dialFunc, secure *tls.Config) (*dialer, error) {
	network, target, err := api.SplitAddress(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: address %w", ErrRequest, err)
	}
	if network == "tls" {
		dial = dial.overTLS(secure)
	}
	return newDialer(func(ctx context.Context) (net.Conn, error) {
		return dial(ctx, network, target)
	}), nil
}

// dialer returns the dialer of a configuration.
func (c config) dialer(addr string) (*dialer, error) {
	if c.descriptionErr != nil {
		return nil, fmt.Errorf("%w: pool: %w", ErrRequest, c.descriptionErr)
	}
	if c.tokenErr != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, c.tokenErr)
	}
	d, err := dialerFor(addr, c.dial, c.tls)
	if err == nil {
		d.token = c.token
		d.description, d.instances = c.description, newInstanceWatch(c.onInstance)
	}
	return d, err
}

// newDialer returns a dialer that makes connections with open.
func newDialer(open func(ctx context.Context) (net.Conn, error)) *dialer {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.Multiplier, policy.MaxInterval, policy.RandomizationFactor = minBackoff, 2, maxBackoff, 0.5
	policy.Reset()
	return &dialer{open: open, backoff: policy}
}

// dial makes a connection. During a backoff it fails at once with the last error. deadline
// bounds it as ctx does, unless it is zero.
func (d *dialer) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	begun := time.Now()
	if err := d.checkBackoff(begun); err != nil {
		return nil, err
	}
	callerCtx := ctx
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	nc, err := d.connect(ctx, deadline)
	if err != nil {
		cause := ctx.Err()
		// An attempt that was canceled, or had less than minBackoff, is no evidence that the
		// server is down.
		if cause == nil || !errors.Is(cause, context.Canceled) && time.Since(begun) >= minBackoff {
			d.recordFailure(begun, err)
		}
		return nil, dialError(callerCtx, cause, deadline, err)
	}
	d.dials.Add(1)
	return nc, nil
}

// connect makes a connection and sends the token and the description of the pool.
func (d *dialer) connect(ctx context.Context, deadline time.Time) (net.Conn, error) {
	token, err := d.readToken()
	if err != nil {
		return nil, err
	}
	nc, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.introduce(ctx, nc, deadline, token); err != nil {
		closeConn(nc)
		return nil, err
	}
	return nc, nil
}

// dialError returns the error of a failed dial. cause is the error of the dial's context,
// nil if that did not end it; it becomes the caller's context error or the client's timeout.
func dialError(callerCtx context.Context, cause error, deadline time.Time, err error) error {
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded) && !deadline.IsZero():
		return fmt.Errorf("%w: %v", timeoutError(callerCtx, deadline), err) //nolint:errorlint // err wraps the context's error in both cases
	case errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// checkBackoff returns the last error during a backoff, nil after it.
func (d *dialer) checkBackoff(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastErr == nil || !now.Before(d.nextAttempt) {
		return nil
	}
	return fmt.Errorf("next attempt in %v: %w", d.nextAttempt.Sub(now).Round(time.Millisecond), d.lastErr)
}

// recordFailure begins a backoff. The attempt that began at begun failed, or its
// connection did before its first reply. Concurrent attempts count as one.
func (d *dialer) recordFailure(begun time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastErr != nil && begun.Before(d.nextAttempt) {
		return
	}
	if !isConnError(err) { // a timeout of this call must not match that of a later one
		err = errors.New(err.Error())
	}
	d.lastErr = err
	d.nextAttempt = time.Now().Add(d.backoff.NextBackOff())
}

// recordSuccess ends the backoff, because the server has answered.
func (d *dialer) recordSuccess() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastErr = nil
	d.backoff.Reset()
}
