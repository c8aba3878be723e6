package config

import (
	"bytes"
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
func (c *Config) YAML() ([]byte, error) { return c.marshal() }

// marshal is YAML with further options.
func (c *Config) marshal(options ...yaml.EncodeOption) ([]byte, error) {
	named := make(map[string]coordinator.Pool, len(c.Pools))
	for name, pool := range c.Pools {
		if rules, err := coordinator.New(pool); err == nil {
			named[name] = rules.Pool()
		}
	}
	shown := *c
	shown.Pools, shown.AcceptPools = named, new(c.Accepts())
	shown.StatusPage = new(c.ServesStatusPage())
	text, err := yaml.MarshalWithOptions(&shown, append(options, marshalOptions...)...)
	if !c.ServesPool() {
		text = ownPool.ReplaceAll(text, nil)
	}
	text = withoutRevisions(text)
	if url := c.Backend.Redis.URL; err == nil && c.Backend.chosen == "redis" && HidePassword(url) != url {
		text = append([]byte(hidden), text...)
	}
	return text, err
}

var marshalOptions = []yaml.EncodeOption{yaml.IndentSequence(true), yaml.CustomMarshaler(quoted)}

// allFields makes YAML have all fields of a type, also those that are left out while they are empty. options are for
// what is below it.
func allFields[T any](options ...yaml.EncodeOption) yaml.EncodeOption {
	return yaml.CustomMarshaler(func(section T) ([]byte, error) {
		var fields yaml.MapSlice
		v := reflect.ValueOf(section)
		for i := range v.NumField() {
			fields = append(fields, yaml.MapItem{Key: tagOf(v.Type().Field(i)), Value: v.Field(i).Interface()})
		}
		return yaml.MarshalWithOptions(fields, append(options, marshalOptions...)...)
	})
}

// withoutRevisions removes the revisions behind a release, which sets them: their name may be
// none that can be written.
func withoutRevisions(text []byte) []byte {
	var out []byte
	release := ""
	for line := range bytes.Lines(text) {
		field := bytes.TrimLeft(line, " ")
		indent := string(line[:len(line)-len(field)])
		switch {
		case bytes.HasPrefix(field, []byte("vllm: ")):
			release = indent
		case bytes.HasPrefix(field, []byte("revision: ")) && indent != "" && indent == release:
			release = ""
			continue
		}
		out = append(out, line...)
	}
	return out
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
