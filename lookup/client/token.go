package client

import (
	"fmt"
	"os"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// tokenFunc returns the token for a new connection, "" for none. It is a function so that no
// printed configuration or client has the token.
type tokenFunc func() (string, error)

// WithToken makes the client send a token, of 1 to 255 bytes, on each connection before anything
// else. If the server refuses it, connecting fails with ErrNotAuthenticated. "" means no token,
// whatever the environment says. Only a tls:// address and a unix socket keep the token from
// those who can read the network.
//
// Default: the token in the first line of the file that the environment variable
// HITLINE_TOKEN_FILE names when the client is made, if it is set. It is read for each new
// connection, so it may be replaced. While it cannot be read, connecting fails with ErrConnect.
func WithToken(token string) Option {
	return func(c *config) {
		c.token, c.tokenErr = func() (string, error) { return token, nil }, nil
		if len(token) > netproto.MaxToken {
			c.tokenErr = fmt.Errorf("a token of %d bytes, at most %d fit", len(token), netproto.MaxToken)
		}
	}
}

// defaultToken returns the tokenFunc of the file that the environment names, nil if it names none.
func defaultToken() tokenFunc {
	path := os.Getenv(api.TokenFileVariable)
	if path == "" {
		return nil
	}
	return func() (string, error) { return api.ReadTokenFile(path) }
}
