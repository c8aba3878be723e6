package config

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/hitline/hitline/coordinator"
)

// hidden precedes a configuration that does not read back.
const hidden = "# The password in backend.redis.url is not shown: write it for *** before using this.\n"

// ownPool matches the section of the server's own pool.
var ownPool = regexp.MustCompile(`(?m)^pool:\n(?:  .*\n)+`)

// YAML returns the configuration as a file that reads back to the same, but for
// the password of a URL: a terminal or a log must not show it.
func (c *Config) YAML() ([]byte, error) {
	named := make(map[string]coordinator.Pool, len(c.Pools))
	for name, pool := range c.Pools {
		if rules, err := coordinator.New(pool); err == nil {
			named[name] = rules.Pool()
		}
	}
	shown := *c
	shown.Pools, shown.AcceptPools = named, new(c.Accepts())
	text, err := yaml.MarshalWithOptions(&shown, yaml.IndentSequence(true), yaml.CustomMarshaler(quoted))
	if !c.ServesPool() {
		text = ownPool.ReplaceAll(text, nil)
	}
	if url := c.Backend.Redis.URL; err == nil && c.Backend.chosen == "redis" && HidePassword(url) != url {
		text = append([]byte(hidden), text...)
	}
	return text, err
}

// harmless matches strings that need no quotes anywhere.
var harmless = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$|^[0-9]+[KMGT]iB$|^t(cp|ls)://[A-Za-z0-9_.:-]+$|^ipc:///[A-Za-z0-9_./-]+$`)

// quoted writes a string. The library's own quoting leaves some control
// characters bare, which then read as nothing.
func quoted(s string) ([]byte, error) {
	if harmless.MatchString(s) && !strings.EqualFold(s, "null") {
		return []byte(s), nil
	}
	return json.Marshal(s)
}
