package config

import "strings"

// checkMetrics checks the address of the HTTP endpoints: host:port as for listen,
// without a scheme, and not an address in use.
func (c *Config) checkMetrics() error {
	const scheme = "tcp://"
	switch {
	case c.Metrics == "":
		return nil
	case strings.Contains(c.Metrics, "://"):
		return c.wrong("metrics", "%q has a scheme; write host:port, such as 127.0.0.1:9557", c.Metrics)
	}
	a, err := parseAddress(scheme + c.Metrics)
	if err != nil {
		return c.wrong("metrics", "%s", strings.ReplaceAll(err.Error(), scheme, ""))
	}
	for i := range c.Listen {
		if b, err := parseAddress(c.Listen[i].Address); err == nil && a.same() == b.same() && a.port != 0 {
			return c.wrong("metrics", "%q is also in listen; HTTP needs a port of its own", c.Metrics)
		}
	}
	return nil
}
