package config

import (
	"fmt"
	neturl "net/url"
	"slices"
	"time"

	"github.com/hitline/hitline/cmd/internal/address"
)

// Warnings returns what may not be meant in a configuration that serve is given, who else may change, or read, the
// configuration in file, "" for none, and the files that it names: each in one line. Of the files of listeners
// ReadSettings warns.
func (c *Config) Warnings(file string) []string {
	return slices.Concat(c.metricsWarnings(), c.plainTextWarnings(), c.snapshotWarnings(), c.fileWarnings(file))
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

// snapshotWarnings returns what may not be meant in backend.memory.snapshot.
func (c *Config) snapshotWarnings() []string {
	if c.Backend.chosen != "memory" {
		return nil
	}
	const section = "backend.memory.snapshot"
	warn := func(field, format string, args ...any) []string {
		return []string{c.wrong(section+"."+field, format, args...).Error()}
	}
	s := c.Backend.Memory.Snapshot
	if s.Path != "" {
		if s.MaxAge > 0 && s.Interval > s.MaxAge {
			return warn("interval", "%v is longer than max_age, %v: after a crash the file may be too old to be loaded",
				time.Duration(s.Interval), time.Duration(s.MaxAge))
		}
		return nil
	}
	if _, off := c.origins[section+".path"]; off {
		return nil
	}
	for _, field := range []string{"interval", "max_age"} {
		if _, set := c.origins[section+"."+field]; set {
			return warn(field, "has no effect without path, the file to write and load")
		}
	}
	return nil
}

// fileWarnings returns who else may change, or read, the configuration in file, "" for none, and the files that it
// names, but those of listeners, of which ReadSettings warns.
func (c *Config) fileWarnings(file string) []string {
	const url = "backend.redis.url"
	var warnings []string
	if a, err := lookAtAccess(file); err == nil && !isReadOnlyMemory(file) {
		password := HidePassword(c.Backend.Redis.URL) != c.Backend.Redis.URL && c.origins.find(url).name == file
		a.uid = 0 // not of its owner: who mounts it into a container is another user there
		for _, exposure := range a.exposures(ownIdentity(), password) {
			warnings = append(warnings, (&problem{at: origin{name: file}, text: exposure}).Error())
		}
	}
	if path := c.Backend.Memory.Snapshot.Path; path != "" && c.Backend.chosen == "memory" {
		warnings = append(warnings, c.exposuresOf("backend.memory.snapshot.path", path, false)...)
	}
	if u, err := neturl.Parse(c.Backend.Redis.URL); err == nil && c.Backend.chosen == "redis" {
		if key := u.Query().Get("key"); key != "" {
			warnings = append(warnings, c.exposuresOf(url, key, true)...)
		}
		if ca := u.Query().Get("ca"); ca != "" {
			warnings = append(warnings, c.exposuresOf(url, ca, false)...)
		}
	}
	if path := c.Router.PeerTokenFile; path != "" {
		warnings = append(warnings, c.exposuresOf("router.peer_token_file", path, true)...)
	}
	return warnings
}
