package config

import (
	"fmt"
	neturl "net/url"
	"os"
	"slices"

	"github.com/hitline/hitline/cmd/internal/address"
)

// Warnings returns what may not be meant in a configuration that serve is given, and what everybody may do with the
// configuration in file, "" for none, and the files that it names: each in one line. Of the files of listeners
// ReadSettings warns.
func (c *Config) Warnings(file string) []string {
	return slices.Concat(c.metricsWarnings(), c.plainTextWarnings(), c.rememberWarnings(), c.fileWarnings(file))
}

// metricsWarnings returns what everybody can do who can connect to metrics, each in one line, if that is not on
// loopback.
func (c *Config) metricsWarnings() []string {
	var warnings []string
	if c.Metrics == "" || c.MetricsIsLocal() {
		return nil
	}
	if c.Pprof {
		warnings = append(warnings, c.wrong("pprof", "everybody who can connect to %q may take profiles; set it to false after use", c.Metrics).Error())
	}
	return warnings
}

// plainTextWarnings returns a line for each address to which serve sends a secret in plain text: the token for peers of
// the router, the password of a Redis.
func (c *Config) plainTextWarnings() []string {
	var warnings []string
	warn := func(path, secret, text string) {
		if why := address.PlainTextWarning(secret, text); why != "" {
			warnings = append(warnings, c.wrong(path, "%s", why).Error())
		}
	}
	if c.Router.PeerTokenFile != "" {
		for i, peer := range c.Router.Peers {
			warn(fmt.Sprintf("router.peers[%d]", i), "token", peer)
		}
	}
	if u, err := neturl.Parse(c.Backend.Redis.URL); err == nil && u.User != nil && c.Backend.chosen == "redis" {
		for _, host := range append([]string{u.Host}, u.Query()["addr"]...) {
			warn("backend.redis.url", "password", u.Scheme+"://"+host)
		}
	}
	return warnings
}

// rememberWarnings returns a warning of a time for which no found block is remembered.
func (c *Config) rememberWarnings() []string {
	m := &c.Backend.Mooncake
	most := m.Lease / 2
	if m.Groups {
		most = m.Lease / 4
	}
	if c.Backend.chosen != "mooncake" || m.Lease == 0 || Duration(m.Remember) <= most {
		return nil
	}
	return []string{c.wrong("backend.mooncake.remember", "%v is never used: a block is remembered for %v at most, by backend.mooncake.lease; "+
		"lower it, or remove it", m.Remember, most).Error()}
}

// fileWarnings returns what everybody may do with the configuration in file, "" for none, and with the files that it
// names, but those of listeners, of which ReadSettings warns.
func (c *Config) fileWarnings(file string) []string {
	const url = "backend.redis.url"
	var warnings []string
	if info, err := os.Stat(file); err == nil && !isReadOnlyMemory(file) {
		password := HidePassword(c.Backend.Redis.URL) != c.Backend.Redis.URL && c.origins.find(url).name == file
		for _, exposure := range exposures(info.Mode(), password) {
			warnings = append(warnings, (&problem{at: origin{name: file}, text: exposure}).Error())
		}
	}
	if u, err := neturl.Parse(c.Backend.Redis.URL); err == nil && c.Backend.chosen == "redis" {
		for _, parameter := range []string{"key", "ca"} {
			if path := u.Query().Get(parameter); path != "" {
				warnings = append(warnings, c.exposuresOf(url, path, parameter == "key")...)
			}
		}
	}
	if path := c.Router.PeerTokenFile; path != "" {
		warnings = append(warnings, c.exposuresOf("router.peer_token_file", path, true)...)
	}
	return warnings
}
