package mooncake

// questionForm returns how keys are asked for on a connection.
func (c *Client) questionForm(cn *conn, peek bool) Form {
	if !peek || cn.form != FormTenant {
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
