package config

import (
	"encoding"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// tagOf returns the name of a struct field in configurations, "" if it has none.
func tagOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
	return name
}

// isLeaf reports whether a value of type t is written as one text.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer:
		return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	}
	return true
}

// isSection reports whether a value of type t has fields of its own.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isLeaf(t) }

// fieldsBelow returns the fields of a struct by their paths, in order. A section comes before its fields.
// A list, a map or an optional section is one value.
func fieldsBelow(parent reflect.Value, path string) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) { walkFields(parent, path, yield) }
}

func walkFields(parent reflect.Value, path string, yield func(string, reflect.Value) bool) bool {
	for i := range parent.NumField() {
		name := tagOf(parent.Type().Field(i))
		if name == "" {
			continue
		}
		below, field := join(path, name), parent.Field(i)
		if !yield(below, field) || isSection(field.Type()) && !walkFields(field, below, yield) {
			return false
		}
	}
	return true
}

// fieldNamed returns the field of a struct that has the name in configurations.
func fieldNamed(parent reflect.Value, name string) (reflect.Value, bool) {
	for i := range parent.NumField() {
		if tag := tagOf(parent.Type().Field(i)); tag == name && tag != "" {
			return parent.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// fieldNames returns the names of a struct's fields, in order.
func fieldNames(parent reflect.Type) []string {
	var names []string
	for i := range parent.NumField() {
		if tag := tagOf(parent.Field(i)); tag != "" {
			names = append(names, tag)
		}
	}
	return names
}

// join appends a name to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// maxNamed bounds the names that an error lists.
const maxNamed = 16

// unknownField words the refusal of a name that parent does not have.
func unknownField(parent reflect.Type, name string) string {
	names := fieldNames(parent)
	if near := cli.Nearest(name, names); near != "" {
		return fmt.Sprintf("unknown field; did you mean %s?", near)
	}
	if len(names) > maxNamed {
		return "unknown field; docs/configuration.md lists those that are known"
	}
	return "unknown field; known are " + strings.Join(names, ", ")
}
