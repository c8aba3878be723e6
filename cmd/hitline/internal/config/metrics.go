package config

import (
	"fmt"
	"strings"

	"github.com/hitline/hitline/cmd/internal/address"
)

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
