package config

import (
	"reflect"
	"strings"

	"github.com/hitline/hitline/cmd/internal/address"
)

// sockets are the paths of the values that have them.
type sockets map[address.Address]string

// checkAddresses checks listen, metrics and router.listen, which need a socket each.
func (c *Config) checkAddresses() error {
	if len(c.Listen) == 0 {
		return c.wrong("listen", "no address; give one such as tcp://127.0.0.1:7557")
	}
	taken := sockets{}
	for i := range c.Listen {
		if err := c.checkEntry(&c.Listen[i], listenPath(i), taken); err != nil {
			return err
		}
	}
	if err := c.checkMetrics(taken); err != nil {
		return err
	}
	if l := c.Router.Listen; l != nil && reflect.DeepEqual(*l, Listener{}) { // an empty text
		c.Router.Listen = nil
	}
	if c.Router.Listen == nil {
		return nil
	}
	return c.checkEntry(c.Router.Listen, routerListenPath, taken)
}

// checkEntry checks the entry of a listener at path.
func (c *Config) checkEntry(l *Listener, path string, taken sockets) error {
	at := path
	switch {
	case c.isSet(path + ".address"):
		at += ".address"
	case l.Address == "":
		return c.wrong(path+".address", "is missing; give one such as tcp://127.0.0.1:7557")
	}
	a, err := address.Parse(l.Address)
	switch {
	case err != nil:
		return c.wrong(at, "%v", err)
	case a.Path != "" && path == routerListenPath:
		return c.wrong(at, "%q: HTTP is served over TCP alone; write tcp://host:port or tls://host:port", l.Address)
	}
	if err := c.take(taken, at, l.Address, a); err != nil {
		return err
	}
	return c.checkListener(l, a, path)
}

// checkMetrics checks the address of the HTTP endpoints: host:port without a scheme; and that there is one for what is
// served there.
func (c *Config) checkMetrics(taken sockets) error {
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
	return c.take(taken, "metrics", c.Metrics, a)
}

// take refuses the address of the value at path if another one has its socket. HTTP may have any port, 0, as another has.
func (c *Config) take(taken sockets, path, text string, a address.Address) error {
	if other, ok := taken[a.Socket()]; ok && (a.Port != 0 || below(path, "listen")) {
		return c.wrong(path, "%q is the address of %s, too; give each its own", text, other)
	}
	taken[a.Socket()] = path
	return nil
}

// MetricsPath and RouterListenPath are the paths of addresses beside listen, whose paths ListenPath returns.
const MetricsPath, RouterListenPath = "metrics", routerListenPath

// ListenPath returns the path of an entry of listen.
func ListenPath(i int) string { return listenPath(i) }

// Addresses returns the addresses that serve binds, by the paths of their fields.
func (c *Config) Addresses() map[string]string {
	all := map[string]string{}
	for i := range c.Listen {
		all[listenPath(i)] = c.Listen[i].Address
	}
	if c.Metrics != "" {
		all[MetricsPath] = metricsScheme + c.Metrics
	}
	if c.Router.Listen != nil {
		all[RouterListenPath] = c.Router.Listen.Address
	}
	return all
}
