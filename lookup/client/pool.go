package client

import (
	"encoding/json"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// WithPool makes the client describe its engine's pool on each connection before anything
// else. All calls then are about that pool. If the server has it otherwise Dial, or after a new
// connection a call, fails with ErrPoolDiffers, and if it refuses it for another reason with
// ErrRefused. name, if not empty, is that of the pool at the server. docs/protocol.md has the rules.
func WithPool(name string, pool coordinator.Pool) Option {
	return func(c *config) {
		c.description, c.descriptionErr = json.Marshal(struct {
			Name string `json:"name,omitempty"`
			coordinator.Pool
		}{name, pool})
	}
}

// WithPoolName is WithPool for a pool that the server has by this name.
func WithPoolName(name string) Option {
	return func(c *config) {
		c.description, c.descriptionErr = json.Marshal(map[string]string{"name": name})
	}
}

// Pool returns the pool as the server has told it on the last connection. ok is false if none
// was made, or without WithPool and WithPoolName.
func (c *Client) Pool() (pool api.Pool, ok bool) {
	if p := c.transport.lastPool(); p != nil {
		return *p, true
	}
	return api.Pool{}, false
}

// lastPool returns the pool as the server has told it on the last connection, nil if it was not
// asked.
func (t *transport) lastPool() *api.Pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool
}

// promptAlignment returns what the tokens of a lookup are multiples of, as the server has told it on the last connection.
func (t *transport) promptAlignment() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.alignTo, 1)
}
