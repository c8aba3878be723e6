package config

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// Value is a value in effect, and where it came from: an origin, "default", or "derived" if it
// follows from other values.
type Value struct {
	Path   string `json:"path"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`

	line int // in the text of Explain, from 0
}

// originColumn is where the origins begin behind values that leave room: they end within 80 columns.
const originColumn = 40

// Explain returns the values in effect in the order of YAML, and the text of YAML with each
// value's origin behind it. Passwords are hidden in both.
func (c *Config) Explain() (values []Value, text []byte, err error) {
	if text, err = c.marshal(true); err != nil {
		return nil, nil, err
	}
	all, err := valuesOf(text)
	if err != nil {
		return nil, nil, err
	}
	defaults, err := c.defaults()
	if err != nil {
		return nil, nil, err
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for _, v := range all {
		if v.Origin = c.explain(v, defaults); v.Origin == "" {
			lines[v.line] = nil
			continue
		}
		values = append(values, v)
		lines[v.line] = fmt.Appendf(nil, "%-*s  # %s\n", originColumn-2, bytes.TrimRight(lines[v.line], "\n"), v.Origin)
	}
	return values, bytes.Join(lines, nil), nil
}

// explain returns the origin of a value, "" if it is empty and nothing says so. defaults are those of Config.defaults.
func (c *Config) explain(v Value, defaults map[string]any) string {
	byDefault, known := defaults[c.defaultPath(v.Path)]
	value := reflect.ValueOf(v.Value)
	isEmpty := !value.IsValid() || value.IsZero()
	isEmptyList := value.Kind() == reflect.Slice // others have a value for each element
	at, written := c.setAt(v.Path, isEmpty)
	switch {
	case written:
		return at.String()
	case known && reflect.DeepEqual(v.Value, byDefault):
		return "default"
	case isEmptyList && !strings.HasPrefix(c.defaultPath(v.Path), "pool."): // of a pool it is left out
		return "default"
	case isEmpty || isEmptyList:
		return ""
	}
	return "derived"
}

// setAt returns where the value at path was set. written is false if it was not.
func (c *Config) setAt(path string, isEmpty bool) (at origin, written bool) {
	if at, written = c.origins[path]; written {
		return at, true
	}
	parent := path[:max(0, strings.LastIndexAny(path, ".["))]
	if !isEmpty && isShort(path) { // as fields it would have an origin of its own
		return c.setAt(parent, false)
	}
	if strings.HasSuffix(path, "]") { // of a list that a variable or a flag set as a whole
		at, written = c.origins[parent]
	}
	return at, written
}

// isShort reports whether the text that may stand for an entry or a section gives the field at path.
func isShort(path string) bool {
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "address":
		return true
	case "name":
		return strings.HasPrefix(path, "router.models[")
	}
	return false
}

// defaults returns the values by default by their paths, with one entry in each list.
func (c *Config) defaults() (map[string]any, error) {
	d, err := Load(Source{})
	if err != nil {
		return nil, err
	}
	d.origins["pool"] = origin{} // so that it is printed
	d.Backend.chosen = c.Backend.chosen
	d.Router.Models = []RouterModel{{Tenant: router.DefaultTenant, Hash: &router.Hashing{Type: router.TypeVLLM, Algorithm: blockhash.SHA256}}}
	d.Router.Sources = []router.Source{{Tenant: router.DefaultTenant, Timeout: Duration(events.DefaultTimeout)}}
	text, err := d.marshal(false)
	if err != nil {
		return nil, err
	}
	list, err := valuesOf(text)
	byPath := map[string]any{}
	for _, v := range list {
		byPath[v.Path] = v.Value
	}
	return byPath, err
}

// defaultPath returns the path at which defaults has the default of path.
func (c *Config) defaultPath(path string) string {
	section := "" // that of a pool: the longest, as names may have dots
	for name := range c.Pools {
		if s := join("pools", name) + "."; strings.HasPrefix(path, s) && len(s) > len(section) {
			section = s
		}
	}
	if section != "" {
		path = join("pool", path[len(section):])
	}
	return listIndex.ReplaceAllString(path, "[0]")
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// valuesOf returns the values of a text of YAML, without their origins.
func valuesOf(text []byte) (values []Value, err error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	var walk func(node ast.Node, path string) error
	walk = func(node ast.Node, path string) error {
		if fields, ok := node.(ast.MapNode); ok {
			for each := fields.MapRange(); each.Next(); {
				if err := walk(each.Value(), join(path, each.Key().GetToken().Value)); err != nil {
					return err
				}
			}
			return nil
		}
		if list, ok := node.(*ast.SequenceNode); ok && len(list.Values) > 0 {
			for i, element := range list.Values {
				if err := walk(element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
					return err
				}
			}
			return nil
		}
		v := Value{Path: path, line: node.GetToken().Position.Line - 1}
		values = append(values, v)
		return yaml.NodeToValue(node, &values[len(values)-1].Value)
	}
	return values, walk(file.Docs[0].Body, "")
}
