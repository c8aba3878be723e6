package client

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// Option configures a Client or an AsyncClient.
type Option func(*config)

// config is what the options set.
type config struct {
	timeout        time.Duration
	connections    int
	pipelined      bool
	failOpen       bool
	dial           dialFunc
	tls            *tls.Config // of tls:// addresses, nil for none
	token          tokenFunc
	tokenErr       error
	description    []byte // of the pool in JSON, nil for none
	descriptionErr error
	pendingIDs     int
	pendingBytes   int
	onInstance     func(api.Instance) // nil for none
}

const (
	defaultTimeout      = 10 * time.Second
	defaultConnections  = 8
	defaultPendingIDs   = 16384
	defaultPendingBytes = 256 << 20
)

// WithTimeout bounds each call, dialing included, by d. 0 or less means that only the
// context bounds it. Default: 10 seconds.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithConnections bounds the connections of a Client by n, at least 1. Each serves one
// call at a time and is opened when it is needed. WithPipeline overrides it. Default: 8.
func WithConnections(n int) Option {
	return func(c *config) { c.connections = max(n, 1) }
}

// WithPipeline makes all calls of a Client share one connection. Up to 1,024 requests are
// in flight on it; further ones wait. It is for many concurrent calls: a single call is
// faster without it. If replies are due and none comes for twice the timeout, the
// connection is closed and its calls fail.
func WithPipeline() Option { return func(c *config) { c.pipelined = true } }

// WithDialer makes connections with dial instead of net.Dialer.DialContext. network is
// "tcp" or "unix". TLS of a tls:// address goes over what dial returns for "tcp".
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithFailOpen makes a lookup that fails a miss: a hit of 0 tokens and an error that also
// wraps ErrFailedOpen, which the caller may ignore. So does one whose token the server refuses.
// ErrRequest still fails the lookup. Dial then does not connect, so a client may start before
// its server.
func WithFailOpen() Option { return func(c *config) { c.failOpen = true } }

// WithPending bounds what an AsyncClient keeps: ids that are pending, and bytes of copied
// hashes that are not sent yet. Default: 16,384 ids and 256 MiB.
func WithPending(ids, bytes int) Option {
	return func(c *config) { c.pendingIDs, c.pendingBytes = max(ids, 1), max(bytes, 0) }
}

func newConfig(opts []Option) config {
	cfg := config{
		timeout: defaultTimeout, connections: defaultConnections,
		dial: new(net.Dialer).DialContext, token: defaultToken(),
		pendingIDs: defaultPendingIDs, pendingBytes: defaultPendingBytes,
	}
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}
