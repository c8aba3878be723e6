package client

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Option configures a Client.
type Option func(*config)

// config is what the options set.
type config struct {
	timeout    time.Duration
	dial       dialFunc
	tls        *tls.Config // of tls:// addresses, nil for none
	token      tokenFunc   // nil for none
	tokenErr   error
	pool       *poolRequest // nil for none
	clientInfo map[string]any
}

const defaultTimeout = 10 * time.Second

// WithTimeout bounds by d the calls whose context has no deadline, and each attempt to connect.
// 0 or less is as the default, 10 seconds.
func WithTimeout(d time.Duration) Option {
	return func(c *config) {
		if c.timeout = d; d <= 0 {
			c.timeout = defaultTimeout
		}
	}
}

// WithDialer makes connections with dial instead of net.Dialer.DialContext. network is
// "tcp" or "unix". TLS of a tls:// address goes over what dial returns for "tcp".
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

func newConfig(opts []Option) config {
	cfg := config{timeout: defaultTimeout, dial: new(net.Dialer).DialContext, token: defaultToken()}
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}
