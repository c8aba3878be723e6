package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
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

// dialer makes connections to one server, with a backoff while it cannot be reached.
type dialer struct {
	open        func(ctx context.Context) (net.Conn, error)
	token       tokenFunc // nil for none
	description []byte    // of the pool, sent on each connection; nil for none

	mu          sync.Mutex
	backoff     *backoff.ExponentialBackOff
	lastErr     error     // of the last attempt, nil if the server has answered since
	nextAttempt time.Time // the end of the backoff, valid if lastErr is not nil
}

// dialer returns the dialer of a configuration for an address, or ErrRequest.
func (c config) dialer(addr string) (*dialer, error) {
	network, target, err := api.SplitAddress(api.AddPort(addr, api.DefaultPort))
	description, poolErr := c.description()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: address %w", ErrRequest, err)
	case poolErr != nil:
		return nil, fmt.Errorf("%w: pool: %w", ErrRequest, poolErr)
	case c.tokenErr != nil:
		return nil, fmt.Errorf("%w: %w", ErrRequest, c.tokenErr)
	}
	dial := c.dial
	if network == "tls" {
		dial = dial.overTLS(c.tls)
	}
	d := newDialer(func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, target) })
	d.token, d.description = c.token, description
	return d, nil
}

// newDialer returns a dialer that makes connections with open.
func newDialer(open func(ctx context.Context) (net.Conn, error)) *dialer {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.Multiplier, policy.MaxInterval, policy.RandomizationFactor = minBackoff, 2, maxBackoff, 0.5
	policy.Reset()
	return &dialer{open: open, backoff: policy}
}

// dial makes a connection within timeout, and returns the token to send on it. During a backoff it
// fails at once with the last error. Its errors are *BackoffError.
func (d *dialer) dial(ctx context.Context, timeout time.Duration) (nc net.Conn, token string, err error) {
	if err := d.checkBackoff(); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if d.token != nil {
		token, err = d.token()
	}
	if err == nil {
		nc, err = d.open(ctx)
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // which is of no caller
			err = fmt.Errorf("%w: %v", os.ErrDeadlineExceeded, err) //nolint:errorlint // see above
		}
		err = &BackoffError{RetryIn: d.recordFailure(err), Err: err}
	}
	return nc, token, err
}

// checkBackoff returns a *BackoffError with the last error during a backoff, nil after it.
func (d *dialer) checkBackoff() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	wait := time.Until(d.nextAttempt)
	if d.lastErr == nil || wait <= 0 {
		return nil
	}
	return &BackoffError{RetryIn: wait, Err: d.lastErr}
}

// recordFailure begins a backoff, and returns how long it is: an attempt failed, or its connection did
// before the server had answered.
func (d *dialer) recordFailure(err error) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !isConnError(err) { // a timeout of this call must not match that of a later one
		err = errors.New(err.Error())
	}
	d.lastErr = err
	pause := d.backoff.NextBackOff()
	d.nextAttempt = time.Now().Add(pause)
	return pause
}

// recordSuccess ends the backoff, because the server has answered.
func (d *dialer) recordSuccess() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastErr = nil
	d.backoff.Reset()
}
