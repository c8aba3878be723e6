package client

import (
	"crypto/tls"
	"os"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// Option configures a Client.
type Option func(*config)

// config is what the options set.
type config struct {
	timeout time.Duration
	token   func() (string, error) // a function, so that nothing that is printed has the token; "": none
	tls     *tls.Config
}

const defaultTimeout = 10 * time.Second

func newConfig(opts []Option) config {
	c := config{timeout: defaultTimeout}
	WithTokenFile(os.Getenv(api.TokenFileVariable))(&c)
	for _, o := range opts {
		o(&c)
	}
	return c
}

// WithTimeout bounds by d each request, connecting included. 0 or less is as the default, 10 seconds.
func WithTimeout(d time.Duration) Option {
	return func(c *config) {
		if c.timeout = d; d <= 0 {
			c.timeout = defaultTimeout
		}
	}
}

// WithToken makes the client send a token with each request. "" means no token, whatever the environment says. Only https://
// keeps it from those who can read the network.
//
// Default: that of WithTokenFile, with the file that the environment variable HITLINE_TOKEN_FILE names.
func WithToken(token string) Option {
	return func(c *config) { c.token = func() (string, error) { return token, nil } }
}

// WithTokenFile makes the client send the token in the first line of a file, which is read for each request, so it may be
// replaced. "" means no token.
func WithTokenFile(path string) Option {
	if path == "" {
		return WithToken("")
	}
	return func(c *config) { c.token = func() (string, error) { return api.ReadTokenFile(path) } }
}

// WithTLS sets the configuration of TLS for an address of https://. cfg is copied; nil is as the default: the roots of the
// system and no client certificate.
func WithTLS(cfg *tls.Config) Option {
	cfg = cfg.Clone() // nil for nil
	return func(c *config) { c.tls = cfg }
}
