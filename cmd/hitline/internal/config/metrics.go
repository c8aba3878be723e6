package config

import (
	"fmt"
	"strings"

	"github.com/hitline/hitline/cmd/internal/address"
)

// checkMetrics checks the address of the HTTP endpoints: host:port as for listen,
// without a scheme, and not an address in use; and that there is one for what is served there.
func (c *Config) checkMetrics() error {
	switch {
	case c.Metrics == "" && c.Pprof:
		return c.wrong("pprof", "needs metrics, the address that it is served at, such as 127.0.0.1:9557")
	case c.Metrics == "":
		return nil
	case strings.Contains(c.Metrics, "://"):
		return c.wrong("metrics", "%q has a scheme; write host:port, such as 127.0.0.1:9557", c.Metrics)
	}
	a, err := address.Parse(metricsScheme + c.Metrics)
	if err != nil {
		return c.wrong("metrics", "%s", strings.ReplaceAll(err.Error(), metricsScheme, ""))
	}
	for i := range c.Listen {
		if b, err := address.Parse(c.Listen[i].Address); err == nil && a.Socket() == b.Socket() && a.Port != 0 {
			return c.wrong("metrics", "%q is also in listen; HTTP needs a port of its own", c.Metrics)
		}
	}
	return nil
}

const metricsScheme = "tcp://"

// checkHTTPHosts checks the names by which clients reach the HTTP ports.
func (c *Config) checkHTTPHosts() error {
	if len(c.HTTPHosts) > 0 && c.Metrics == "" && c.Router.Listen == nil {
		return c.wrong("http_hosts", "needs metrics or router.listen, which it is for")
	}
	for i, name := range c.HTTPHosts {
		if a, err := address.Parse(metricsScheme + name + ":0"); err != nil || !strings.EqualFold(a.Host, name) {
			return c.wrong(fmt.Sprintf("http_hosts[%d]", i), "%q is no name of a host; write one without scheme and port, such as hitline.example.com", name)
		}
	}
	return nil
}

// MetricsIsLocal reports whether only processes of this machine can connect to metrics, as
// Listener.IsLocal. It is false if metrics is not served.
func (c *Config) MetricsIsLocal() bool {
	l := Listener{Address: metricsScheme + c.Metrics}
	return c.Metrics != "" && l.IsLocal()
}
