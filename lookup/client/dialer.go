package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hitline/hitline/lookup/api"
)

// dialer makes connections to one server.
type dialer struct {
	open        func(ctx context.Context) (net.Conn, error)
	token       tokenFunc // nil for none
	description []byte    // of the pool, sent on each connection; nil for none

	pause  time.Duration               // redialPause
	pauses *backoff.ExponentialBackOff // of an outage
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
	return &dialer{open: open, pause: redialPause, pauses: newPauses()}
}

// dial makes a connection within timeout, and returns the token to send on it.
func (d *dialer) dial(ctx context.Context, timeout time.Duration) (nc net.Conn, token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if d.token != nil {
		token, err = d.token()
	}
	if err == nil {
		nc, err = d.open(ctx)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) { // which is of no caller
		err = fmt.Errorf("%w: %v", os.ErrDeadlineExceeded, err) //nolint:errorlint // see above
	}
	return nc, token, err
}
