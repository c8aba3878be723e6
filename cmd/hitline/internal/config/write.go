package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

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

// originColumn is where the origins begin after values that leave room: they end within 80 columns.
const originColumn = 40

// Explain returns what YAML does, with the origin of each value that was set as a comment. Others are defaults, or follow
// from values that were set.
func (c *Config) Explain() ([]byte, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(text), "\n")
	c.annotate(lines, file.Docs[0].Body, "")
	return []byte(strings.Join(lines, "")), nil
}

// annotate adds the origins of the values below a node, the value of path, to their lines.
func (c *Config) annotate(lines []string, node ast.Node, path string) {
	if fields, ok := node.(ast.MapNode); ok {
		for each := fields.MapRange(); each.Next(); {
			c.annotate(lines, each.Value(), join(path, each.Key().GetToken().Value))
		}
		return
	}
	if list, ok := node.(*ast.SequenceNode); ok && len(list.Values) > 0 {
		for i, element := range list.Values {
			c.annotate(lines, element, fmt.Sprintf("%s[%d]", path, i))
		}
		return
	}
	if at, ok := c.setAt(path); ok {
		line := &lines[node.GetToken().Position.Line-1]
		*line = fmt.Sprintf("%-*s  # %v\n", originColumn-2, strings.TrimSuffix(*line, "\n"), at)
	}
}

// setAt returns where the value at path was set. ok is false if it was not.
func (c *Config) setAt(path string) (at origin, ok bool) {
	if at, ok = c.origins[path]; ok {
		return at, ok
	}
	if entry, isAddress := strings.CutSuffix(path, ".address"); isAddress { // which stood for the entry
		return c.setAt(entry)
	}
	if strings.HasSuffix(path, "]") { // of a list that a variable or a flag set as a whole
		at, ok = c.origins[path[:strings.LastIndexByte(path, '[')]]
	}
	return at, ok
}
