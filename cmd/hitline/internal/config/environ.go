package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hitline/hitline/cmd/internal/environ"
)

// variable is a value that an environment variable can set.
type variable struct {
	path string
	dst  reflect.Value
}

// variables returns every value of c by the name of its variable, the sections too.
func (c *Config) variables() map[string]variable {
	all := map[string]variable{}
	for path, dst := range fieldsBelow(fieldsOf(c), "") {
		all[variableName(path)] = variable{path, dst}
	}
	return all
}

// variableName is the one rule: HITLINE_ and the path in upper case, joined by
// underscores.
func variableName(path string) string {
	return environ.Prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// readEnviron applies the variables among those given. Names are taken in order, so
// that a section's variable comes before those of its fields.
func (c *Config) readEnviron(variables []string) error {
	given := map[string]string{}
	for _, entry := range variables {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, environ.Prefix) {
			given[name] = value
		}
	}
	known := c.variables()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if v, ok := known[name]; ok {
			if err := c.readVariable(name, given[name], v); err != nil {
				return err
			}
		} else if err := refuseVariable(name, known); err != nil {
			return err
		}
	}
	return c.choose(func(at origin) bool {
		_, ours := given[at.name]
		return ours
	})
}

// readRelease takes the release of the server's own pool from the plug-in's variable if none is configured.
func (c *Config) readRelease(variables []string) {
	const name = "HITLINE_VLLM"
	if c.isSet("pool.vllm") || !c.ServesPool() || c.Router.IsServed() && !c.HasPool() {
		return
	}
	for _, entry := range variables {
		if release, ok := strings.CutPrefix(entry, name+"="); ok && release != "" {
			c.origins.set("pool.vllm", origin{name: name})
			c.Pool.VLLM = release
		}
	}
}

// CheckVariables refuses a variable that begins with HITLINE_ and that nobody reads: it is misspelt.
func CheckVariables(variables []string) error {
	c := Default()
	known := c.variables()
	for _, entry := range slices.Sorted(slices.Values(variables)) {
		name, _, ok := strings.Cut(entry, "=")
		if _, isKnown := known[name]; !ok || isKnown || !strings.HasPrefix(name, environ.Prefix) {
			continue
		}
		if err := refuseVariable(name, known); err != nil {
			return err
		}
	}
	return nil
}

// readVariable sets one value from the text of its variable.
func (c *Config) readVariable(name, text string, v variable) error {
	at := origin{name: name}
	list, isList := v.dst.Addr().Interface().(*[]string)
	listen, isListen := v.dst.Addr().Interface().(*[]Listener)
	switch {
	case isList:
		*list = splitList(text)
	case isListen:
		*listen = Listeners(splitList(text)...)
	case isLeaf(v.dst.Type()):
		if err := (scalar{text: text}).set(v.dst); err != nil {
			return &problem{at: at, text: err.Error(), err: err}
		}
	case strings.TrimSpace(text) == "":
		return &problem{at: at, text: "is empty; unset it for the default"}
	default:
		r := reader{name: name, origins: c.origins}
		return r.document(v.dst, []byte(text), v.path)
	}
	c.origins.set(v.path, at)
	return nil
}

// splitList splits at commas. An empty text is an empty list.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// refuseVariable refuses a variable that nobody is known to read.
func refuseVariable(name string, known map[string]variable) error {
	if environ.IsKnown(name) {
		return nil
	}
	if strings.HasPrefix(name, environ.Prefix+"POOLS_") {
		return &problem{at: origin{name: name}, text: "no such variable; write the pools as YAML in HITLINE_POOLS, or in the file"}
	}
	if rest, ok := strings.CutPrefix(name, variableName("backend")+"_"); ok {
		word, _, _ := strings.Cut(rest, "_")
		if err := checkBackendName(strings.ToLower(word)); err != nil {
			return &problem{at: origin{name: name}, text: err.Error(), err: err}
		}
	}
	return &problem{at: origin{name: name}, text: environ.Unknown(name, slices.Concat(slices.Sorted(maps.Keys(known)), environ.Clients))}
}
