package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
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
	file, err := r.parse(text)
	if err != nil {
		return err
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch len(docs) {
	case 0:
		return nil
	case 1:
		return r.value(dst, docs[0].Body, path)
	}
	return r.located(docs[1].Body, "", errors.New("a second document; only one is read, merge them"))
}

// at returns the origin of a token.
func (r *reader) at(t *token.Token) origin {
	return origin{name: r.name, line: t.Position.Line, column: t.Position.Column}
}

// located returns err as a problem of the value at path, which node holds. A problem
// of something below it stays as it is.
func (r *reader) located(node ast.Node, path string, err error) error {
	var below *problem
	if err == nil || errors.As(err, &below) {
		return err
	}
	return &problem{at: r.at(start(node)), path: path, text: err.Error(), err: err}
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
	switch dst.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		if !dst.IsZero() { // of an earlier source: only then, as drop looks at all of them
			r.origins.drop(path)
		}
	}
	r.origins[path] = r.at(start(node))
	return r.located(node, path, r.decode(dst, node, path))
}

// decode is value without the origin, and with errors that do not say where.
func (r *reader) decode(dst reflect.Value, node ast.Node, path string) error {
	switch node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return errors.New("anchors, aliases and tags are not read here; write the value out")
	}
	s, single := scalarOf(node)
	short, isShort := dst.Addr().Interface().(shorthand)
	list, isList := node.(*ast.SequenceNode)
	fields, isMapping := node.(ast.MapNode)
	kind := dst.Kind()
	switch {
	case isShort && single:
		return short.setShort(s)
	case isLeaf(dst.Type()) && single:
		return s.set(dst)
	case kind == reflect.Pointer && s.null:
		dst.SetZero()
		return nil
	case kind == reflect.Pointer:
		fresh := reflect.New(dst.Type().Elem())
		dst.Set(fresh)
		return r.decode(fresh.Elem(), node, path)
	case kind == reflect.Slice && isList:
		return r.list(dst, list, path)
	case kind == reflect.Struct && s.null: // what is left when all its fields are commented out
		return nil
	case kind == reflect.Struct && isMapping:
		return r.section(dst, fields, path)
	case kind == reflect.Map && isMapping:
		return r.readMap(dst, fields, path)
	}
	return r.wrongKind(node, dst.Type())
}

// list reads a list, which replaces the one before.
func (r *reader) list(dst reflect.Value, list *ast.SequenceNode, path string) error {
	dst.Set(reflect.MakeSlice(dst.Type(), len(list.Values), len(list.Values)))
	for i, element := range list.Values {
		if err := r.value(dst.Index(i), element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

// section reads the fields of a struct. Fields given twice the parser has refused already.
func (r *reader) section(dst reflect.Value, fields ast.MapNode, path string) error {
	for each := fields.MapRange(); each.Next(); {
		key := each.Key()
		name, err := r.fieldName(key)
		if err != nil {
			return r.located(key, path, err)
		}
		field, ok := fieldNamed(dst, name)
		switch {
		case !ok && r.secret:
			return r.located(key, path, errors.New("unknown field; known are "+strings.Join(fieldNames(dst.Type()), ", ")))
		case !ok:
			return r.located(key, join(path, name), errors.New(unknownField(dst.Type(), name)))
		}
		if err := r.value(field, each.Value(), join(path, name)); err != nil {
			return err
		}
		if _, single := scalarOf(each.Value()); !single {
			r.origins[join(path, name)] = r.at(key.GetToken()) // a section is best found by its name
		}
	}
	return nil
}

// readMap reads values by name, which replace those before.
func (r *reader) readMap(dst reflect.Value, fields ast.MapNode, path string) error {
	dst.Set(reflect.MakeMap(dst.Type()))
	for each := fields.MapRange(); each.Next(); {
		name, err := r.fieldName(each.Key())
		if err != nil {
			return r.located(each.Key(), path, err)
		}
		value := reflect.New(dst.Type().Elem()).Elem()
		if err := r.value(value, each.Value(), join(path, name)); err != nil {
			return err
		}
		dst.SetMapIndex(reflect.ValueOf(name), value)
	}
	return nil
}

// fieldName returns the text of a key, which must be a plain word.
func (r *reader) fieldName(key ast.MapKeyNode) (string, error) {
	if name, ok := key.(*ast.StringNode); ok {
		return name.Value, nil
	}
	if key.IsMergeKey() {
		return "", errors.New("merge keys are not read here; write the fields out")
	}
	return "", fmt.Errorf("%s is not the name of a field", r.quote(key.GetToken().Value, "%s"))
}

// quote returns text in the format, unless it may be a secret.
func (r *reader) quote(text, format string) string {
	if r.secret {
		return "a value"
	}
	return fmt.Sprintf(format, text)
}

// wrongKind names what was found where a value of another kind is expected.
func (r *reader) wrongKind(node ast.Node, want reflect.Type) error {
	var found, expected string
	switch node.(type) {
	case ast.MapNode:
		found = "fields"
	case *ast.SequenceNode:
		found = "a list"
	case *ast.NullNode:
		found = "nothing"
	default:
		found = r.quote(HidePassword(node.GetToken().Value), "%.64q") // it could be a URL
	}
	switch {
	case isLeaf(want):
		expected = "a single value is expected"
	case want.Kind() == reflect.Slice && strings.HasSuffix(found, `"`):
		expected = "a list is expected; write it in brackets"
	case want.Kind() == reflect.Slice:
		expected = "a list is expected"
	case want.Kind() == reflect.Map:
		expected = "names are expected, each with its fields"
	case strings.HasSuffix(found, `"`) && strings.Contains(found, ":") && !strings.Contains(found, "://"):
		expected = "fields are expected; write name: value, with a space after the colon"
	default:
		expected = "fields are expected: " + strings.Join(fieldNames(want), ", ")
		if field, ok := fieldNamed(reflect.New(want).Elem(), node.GetToken().Value); ok && isSection(field.Type()) {
			expected = fmt.Sprintf("fields are expected; write {%s: {%s: …}}", node.GetToken().Value, fieldNames(field.Type())[0])
		}
	}
	return fmt.Errorf("%s where %s", found, expected)
}
