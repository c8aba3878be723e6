package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// reader reads YAML from one origin over values that exist already: what the text
// does not mention keeps its value.
type reader struct {
	name    string  // of the file or the variable
	origins origins // gets the origin of all that is set
	secret  bool    // no error quotes the text: what is in the wrong place may be a token
}

// shorthand is a section or a list that a single value may stand for.
type shorthand interface{ setShort(s scalar) error }

// fieldsOf returns the settable struct below a pointer.
func fieldsOf(pointer any) reflect.Value { return reflect.ValueOf(pointer).Elem() }

// document reads a text that holds the value of path.
func (r *reader) document(dst reflect.Value, text []byte, path string) error {
	file, err := parser.ParseBytes(plainLines(text), 0)
	if err != nil {
		return r.syntax(err)
	}
	r.origins.drop(path) // once: it looks at all of them
	read := false
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
			continue
		case read:
			return r.wrong(doc.Body, "", "a second document; only one is read, merge them")
		}
		read = true
		if err := r.value(dst, doc.Body, path); err != nil {
			return err
		}
	}
	return nil
}

// plainLines drops a byte order mark and carriage returns: the parser would
// count a mark as a column and some returns as lines.
func plainLines(text []byte) []byte {
	return []byte(strings.ReplaceAll(strings.TrimPrefix(string(text), "\ufeff"), "\r\n", "\n"))
}

// syntax words an error of the parser.
func (r *reader) syntax(err error) error {
	p := &problem{at: origin{name: r.name}, text: err.Error(), err: err}
	var positioned yaml.Error
	if errors.As(err, &positioned) && positioned.GetToken() != nil {
		p.at = r.at(positioned.GetToken())
		p.text, _, _ = strings.Cut(positioned.GetMessage(), "\n")
	}
	if r.secret {
		p.text, p.err = "is not YAML, or has a field twice", nil
	}
	return p
}

// at returns the origin of a token.
func (r *reader) at(t *token.Token) origin {
	return origin{name: r.name, line: t.Position.Line, column: t.Position.Column}
}

// wrong is a problem of the value at path, which node holds.
func (r *reader) wrong(node ast.Node, path, format string, args ...any) error {
	return &problem{at: r.at(start(node)), path: path, text: fmt.Sprintf(format, args...)}
}

// start returns the token where a node begins. A block mapping's own token is
// its first colon, and a reader looks for the key.
func start(node ast.Node) *token.Token {
	switch n := node.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return node.GetToken()
}

// value reads node, the value of path, into dst.
func (r *reader) value(dst reflect.Value, node ast.Node, path string) error {
	switch node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return r.wrong(node, path, "anchors, aliases and tags are not read here; write the value out")
	}
	r.origins[path] = r.at(start(node))
	if short, ok := dst.Addr().Interface().(shorthand); ok {
		if s, plain := scalarOf(node); plain {
			return r.refused(node, path, short.setShort(s))
		}
	}
	_, isText := dst.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
		return r.scalar(dst, node, path)
	case dst.Kind() == reflect.Struct:
		return r.mapping(dst, node, path)
	case dst.Kind() == reflect.Slice:
		return r.sequence(dst, node, path)
	case dst.Kind() == reflect.Map:
		return r.named(dst, node, path)
	case dst.Kind() == reflect.Pointer:
		return r.optional(dst, node, path)
	}
	return r.scalar(dst, node, path)
}

// optional reads a value that null takes away.
func (r *reader) optional(dst reflect.Value, node ast.Node, path string) error {
	if _, null := node.(*ast.NullNode); null {
		dst.SetZero()
		return nil
	}
	fresh := reflect.New(dst.Type().Elem())
	if err := r.value(fresh.Elem(), node, path); err != nil {
		return err
	}
	dst.Set(fresh)
	return nil
}

func (r *reader) scalar(dst reflect.Value, node ast.Node, path string) error {
	s, ok := scalarOf(node)
	if !ok {
		return r.wrong(node, path, "%s where a single value is expected", r.describe(node))
	}
	return r.refused(node, path, s.set(dst))
}

// refused is the problem that err, which may be nil, is at node.
func (r *reader) refused(node ast.Node, path string, err error) error {
	if err == nil {
		return nil
	}
	return &problem{at: r.at(start(node)), path: path, text: err.Error(), err: err}
}

// sequence reads a list, which replaces the one before.
func (r *reader) sequence(dst reflect.Value, node ast.Node, path string) error {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return r.wrong(node, path, "%s where a list is expected", r.describe(node))
	}
	fresh := reflect.MakeSlice(dst.Type(), len(list.Values), len(list.Values))
	for i, element := range list.Values {
		if err := r.value(fresh.Index(i), element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	dst.Set(fresh)
	return nil
}

// mapping reads the fields of a struct. Nothing below a key is an empty mapping:
// what is left when all fields of a section are commented out. Fields given twice
// the parser has refused already.
func (r *reader) mapping(dst reflect.Value, node ast.Node, path string) error {
	if _, null := node.(*ast.NullNode); null {
		return nil
	}
	fields, ok := node.(ast.MapNode)
	if !ok {
		return r.wrong(node, path, "%s where fields are expected: %s", r.describe(node), strings.Join(fieldNames(dst.Type()), ", "))
	}
	var seen []string
	for each := fields.MapRange(); each.Next(); {
		key := each.Key()
		name, err := r.fieldName(key, path)
		if err != nil {
			return err
		}
		at := r.at(key.GetToken())
		seen = append(seen, name)
		if err := checkBackends(path, seen); err != nil {
			return &problem{at: at, path: path, text: err.Error(), err: err}
		}
		field, ok := fieldNamed(dst, name)
		if !ok {
			return r.unknown(at, path, name, dst.Type())
		}
		if err := r.value(field, each.Value(), join(path, name)); err != nil {
			return err
		}
		if _, plain := scalarOf(each.Value()); !plain {
			r.origins[join(path, name)] = at // a section is best found by its name
		}
	}
	return nil
}

// named reads values by name, which replace those before.
func (r *reader) named(dst reflect.Value, node ast.Node, path string) error {
	fields, ok := node.(ast.MapNode)
	if !ok {
		return r.wrong(node, path, "%s where names are expected, each with its fields", r.describe(node))
	}
	fresh := reflect.MakeMap(dst.Type())
	for each := fields.MapRange(); each.Next(); {
		name, err := r.fieldName(each.Key(), path)
		if err != nil {
			return err
		}
		value := reflect.New(dst.Type().Elem()).Elem()
		if err := r.value(value, each.Value(), join(path, name)); err != nil {
			return err
		}
		fresh.SetMapIndex(reflect.ValueOf(name), value)
	}
	dst.Set(fresh)
	return nil
}

// fieldName returns the text of a key, which must be a plain word.
func (r *reader) fieldName(key ast.MapKeyNode, path string) (string, error) {
	if name, ok := key.(*ast.StringNode); ok {
		return name.Value, nil
	}
	if key.IsMergeKey() {
		return "", r.wrong(key, path, "merge keys are not read here; write the fields out")
	}
	return "", r.wrong(key, path, "%s is not the name of a field", r.quote(key.GetToken().Value, "%s"))
}

// unknown is the problem of a name that the struct at path does not have.
func (r *reader) unknown(at origin, path, name string, parent reflect.Type) error {
	if r.secret {
		return &problem{at: at, path: path, text: "unknown field; known are " + strings.Join(fieldNames(parent), ", ")}
	}
	return &problem{at: at, path: join(path, name), text: unknownField(parent, name)}
}

// quote returns text in the format, unless it may be a secret.
func (r *reader) quote(text, format string) string {
	if r.secret {
		return "a value"
	}
	return fmt.Sprintf(format, text)
}

// describe names what was found where something else was expected.
func (r *reader) describe(node ast.Node) string {
	switch node.(type) {
	case ast.MapNode:
		return "fields"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	}
	return r.quote(HidePassword(node.GetToken().Value), "%q") // it could be a URL
}
