package config

import (
	"encoding/json"
	"reflect"
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
func (c *Config) YAML() ([]byte, error) { return c.marshal(false) }

// marshal is YAML, if all is set with the fields of pools and groups that are left out while they are empty.
func (c *Config) marshal(all bool) ([]byte, error) {
	named := make(map[string]coordinator.Pool, len(c.Pools))
	for name, pool := range c.Pools {
		if rules, err := coordinator.New(pool); err == nil {
			named[name] = rules.Pool()
		}
	}
	shown := *c
	shown.Pools, shown.AcceptPools = named, new(c.Accepts())
	options := []yaml.EncodeOption{yaml.IndentSequence(true), yaml.CustomMarshaler(quoted)}
	options = append(options, marshalSection[coordinator.Group](all, options))
	options = append(options, marshalSection[coordinator.Pool](all, options))
	text, err := yaml.MarshalWithOptions(&shown, options...)
	if !c.ServesPool() {
		text = ownPool.ReplaceAll(text, nil)
	}
	if url := c.Backend.Redis.URL; err == nil && c.Backend.chosen == "redis" && HidePassword(url) != url {
		text = append([]byte(hidden), text...)
	}
	return text, err
}

// marshalSection writes a pool or a group as its tags say, and its empty fields only if all is set.
func marshalSection[T any](all bool, options []yaml.EncodeOption) yaml.EncodeOption {
	return yaml.CustomMarshaler(func(section T) ([]byte, error) {
		var fields yaml.MapSlice
		for i, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
			value := reflect.ValueOf(section).Field(i)
			omitted := value.IsZero() && strings.HasSuffix(field.Tag.Get("yaml"), ",omitempty") && !all
			if !omitted {
				fields = append(fields, yaml.MapItem{Key: tagOf(field), Value: value.Interface()})
			}
		}
		return yaml.MarshalWithOptions(fields, options...)
	})
}

// harmless matches strings that need no quotes anywhere.
var harmless = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$|^t(cp|ls)://[A-Za-z0-9_.:-]+$|^ipc:///[A-Za-z0-9_./-]+$`)

// quoted writes a string. The library's own quoting leaves some control
// characters bare, which then read as nothing.
func quoted(s string) ([]byte, error) {
	if harmless.MatchString(s) && !strings.EqualFold(s, "null") {
		return []byte(s), nil
	}
	return json.Marshal(s)
}
