package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// prefix begins the names of all variables.
const prefix = "HITLINE_"

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
	return prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// readEnviron applies the variables among environ. Names are taken in order, so
// that a section's variable comes before those of its fields.
func (c *Config) readEnviron(environ []string) error {
	given := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, prefix) {
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

// CheckVariables refuses a variable that begins with HITLINE_ and that nobody reads: it is misspelt.
func CheckVariables(environ []string) error {
	c := Default()
	known := c.variables()
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, _, ok := strings.Cut(entry, "=")
		if _, isKnown := known[name]; !ok || isKnown || !strings.HasPrefix(name, prefix) {
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

// serviceVariable matches what Kubernetes adds for a service, also for one that is called hitline-pool or hitline-log.
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|ADDR|PORT))?)$`)

// clients are the variables of clients and the plug-in, which may run in the same environment.
var clients = []string{
	"HITLINE_ADDRESS", "HITLINE_TOKEN_FILE", "HITLINE_TLS_CA", "HITLINE_TLS_CERT", "HITLINE_TLS_KEY",
	"HITLINE_TIMEOUT", "HITLINE_VLLM", "HITLINE_ON_MISMATCH", "HITLINE_LOOKUP", "HITLINE_POOL_NAME",
}

// others are the variables of builds, tests and scripts. Nobody who configures a server means them.
var others = []string{
	"HITLINE_VERSION", "HITLINE_DATE", "HITLINE_LDFLAGS", "HITLINE_PYTHON_VERSION", "HITLINE_WHEEL_PLATFORM", "HITLINE_WHEEL_PROGRAMS",
	"HITLINE_KERNEL", "HITLINE_COLD", "HITLINE_TAG", "HITLINE_ROOTS", "HITLINE_KEEP", "HITLINE_CONFORMANCE", "HITLINE_E2E_DIR", "HITLINE_BENCH_ENTRIES",
}

// testPrefix begins the names of further variables of tests.
const testPrefix = prefix + "TEST_"

// refuseVariable refuses a variable that nobody is known to read.
func refuseVariable(name string, known map[string]variable) error {
	if serviceVariable.MatchString(name) || slices.Contains(clients, name) || slices.Contains(others, name) || strings.HasPrefix(name, testPrefix) {
		return nil
	}
	if strings.HasPrefix(name, prefix+"POOLS_") {
		return &problem{at: origin{name: name}, text: "no such variable; write the pools as YAML in HITLINE_POOLS, or in the file"}
	}
	if rest, ok := strings.CutPrefix(name, variableName("backend")+"_"); ok {
		word, _, _ := strings.Cut(rest, "_")
		if err := checkBackendName(strings.ToLower(word)); err != nil {
			return &problem{at: origin{name: name}, text: err.Error(), err: err}
		}
	}
	text := "no such variable"
	if near := cli.Nearest(name, slices.Concat(slices.Sorted(maps.Keys(known)), clients)); near != "" {
		text += "; did you mean " + near + "?"
	}
	return &problem{at: origin{name: name}, text: text}
}
