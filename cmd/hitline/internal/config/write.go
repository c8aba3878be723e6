package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// hidden precedes a configuration that does not read back.
const hidden = "# The password in backend.redis.url is not shown: write it for *** before using this.\n"

// YAML returns the configuration as a file that reads back to the same, but for
// the password of a URL: a terminal or a log must not show it.
func (c *Config) YAML() ([]byte, error) {
	text, err := yaml.MarshalWithOptions(c, yaml.IndentSequence(true), yaml.CustomMarshaler(quoted))
	if c.Pool.VLLM != "" { // it sets the revision, whose name may be none that can be written
		text = bytes.Replace(text, []byte("\n  revision: "+c.Pool.Revision.String()+"\n"), []byte("\n"), 1)
	}
	if url := c.Backend.Redis.URL; err == nil && c.Backend.chosen == "redis" && HidePassword(url) != url {
		text = append([]byte(hidden), text...)
	}
	return text, err
}

// harmless matches strings that need no quotes anywhere.
var harmless = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$|^tcp://[A-Za-z0-9_.:-]+$|^ipc:///[A-Za-z0-9_./-]+$`)

// quoted writes a string. The library's own quoting leaves some control
// characters bare, which then read as nothing.
func quoted(s string) ([]byte, error) {
	if harmless.MatchString(s) && !strings.EqualFold(s, "null") {
		return []byte(s), nil
	}
	return json.Marshal(s)
}
