package mooncake

import (
	"context"

	"github.com/hitline/hitline/backend"
)

var _ backend.Peeker = (*Client)(nil)

// Peek is Exists for keys that nobody is about to load: a master of v0.3.14 or later leases none of them.
func (c *Client) Peek(ctx context.Context, keys backend.Keys) ([]int, error) {
	return c.ask(ctx, keys, true)
}

// questionForm returns how keys are asked for on a connection.
func (c *Client) questionForm(cn *conn, probe bool) Form {
	if !probe || cn.form != FormTenant {
		return cn.form
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process.noProbes {
		return cn.form
	}
	return formProbe
}

// recordNoProbes records that the leader does not know BatchProbeKey.
func (c *Client) recordNoProbes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process.noProbes = true
}
