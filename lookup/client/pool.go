package client

import (
	"encoding/json"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// poolRequest is the JSON of a pool request.
type poolRequest struct {
	Name   *string        `json:"name,omitempty"`
	Client map[string]any `json:"client,omitempty"`
	*coordinator.Pool
}

// WithPool makes the client describe its engine's pool on each connection before anything
// else. All calls then are about that pool. If the server has it otherwise Dial, or after a new
// connection a call, fails with ErrPoolDiffers, and if it refuses it for another reason with
// ErrRefused. name, if not empty, is that of the pool at the server. docs/protocol.md has the rules.
func WithPool(name string, pool coordinator.Pool) Option {
	return func(c *config) {
		c.pool = &poolRequest{Pool: &pool}
		if name != "" {
			c.pool.Name = &name
		}
	}
}

// WithPoolName is WithPool for a pool that the server has by this name.
func WithPoolName(name string) Option {
	return func(c *config) { c.pool = &poolRequest{Name: &name} }
}

// WithClientInfo sends what the client says of itself with WithPool or WithPoolName, without which it has no effect.
// The server names it by process, instance_id, role and rank, and ignores keys that it does not know; docs/protocol.md
// has them. info must not change until Dial has returned.
func WithClientInfo(info map[string]any) Option {
	return func(c *config) { c.clientInfo = info }
}

// description returns the JSON of the pool, nil for none.
func (c config) description() ([]byte, error) {
	if c.pool == nil {
		return nil, nil
	}
	request := *c.pool
	request.Client = c.clientInfo
	return json.Marshal(request)
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
