package config

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// YAML returns the configuration as a file that reads back to the same.
func (c *Config) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(c, yaml.IndentSequence(true), yaml.CustomMarshaler(quoted))
}

// harmless matches strings that need no quotes in any place.
var harmless = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$|^tcp://[A-Za-z0-9_.:-]+$|^ipc:///[A-Za-z0-9_./-]+$`)

// quoted writes a string. The library's own quoting leaves some control
// characters bare, which then read as nothing.
func quoted(s string) ([]byte, error) {
	if harmless.MatchString(s) && !strings.EqualFold(s, "null") {
		return []byte(s), nil
	}
	return json.Marshal(s)
}
