package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// scalar is a value without structure, as it was written.
type scalar struct {
	text   string
	quoted bool // it can only be a string
	null   bool
}

// scalarOf returns the scalar that a node is. The text is that of the source:
// what it means depends on the field it is for, so 0123 stays a name's 0123.
func scalarOf(node ast.Node) (scalar, bool) {
	switch n := node.(type) {
	case *ast.NullNode:
		return scalar{null: true}, true
	case *ast.StringNode:
		kind := n.GetToken().Type
		return scalar{text: n.Value, quoted: kind == token.SingleQuoteType || kind == token.DoubleQuoteType}, true
	case *ast.LiteralNode:
		return scalar{text: n.Value.Value, quoted: true}, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return scalar{text: n.GetToken().Value}, true
	case *ast.MappingNode:
		if len(n.Values) == 1 && !n.IsFlowStyle {
			return adjoined(n.Values[0])
		}
	case *ast.MappingValueNode:
		return adjoined(n)
	}
	return scalar{}, false
}

// adjoined returns the scalar that host:port is, as all colons without a space
// behind them. The parser takes it for a field where it is in brackets in braces.
func adjoined(n *ast.MappingValueNode) (scalar, bool) {
	key, ok := n.Key.(ast.Node)
	if !ok || key.Type() == ast.MergeKeyType || key.Type() == ast.MappingKeyType {
		return scalar{}, false
	}
	first, ok := scalarOf(key)
	last, plain := scalarOf(n.Value)
	if !ok || !plain || first.quoted || last.quoted || last.null {
		return scalar{}, false
	}
	from, to := key.GetToken().Position, start(n.Value).Position
	if from.Line != to.Line || to.Column != from.Column+len(first.text)+1 {
		return scalar{}, false
	}
	return scalar{text: first.text + ":" + last.text}, true
}

var errNoValue = errors.New("has no value; leave the field out for its default")

// set stores s in dst, whose type decides how it reads. The errors say what is
// wrong without saying where.
func (s scalar) set(dst reflect.Value) error {
	text, isText := dst.Addr().Interface().(encoding.TextUnmarshaler)
	want := "a whole number"
	if dst.Kind() == reflect.Bool {
		want = "true or false"
	}
	switch {
	case s.null:
		return errNoValue
	case isText:
		return text.UnmarshalText([]byte(s.text))
	case dst.Kind() == reflect.String:
		dst.SetString(s.text)
		return nil
	case s.quoted:
		return fmt.Errorf("%q is a string, must be %s without quotes", s.text, want)
	case dst.Kind() == reflect.Bool:
		return setBool(dst, s.text)
	}
	return setInt(dst, s.text)
}

func setBool(dst reflect.Value, text string) error {
	switch text {
	case "true", "True", "TRUE", "false", "False", "FALSE":
		dst.SetBool(text[0]|0x20 == 't')
		return nil
	}
	return fmt.Errorf("%q is not true or false", text)
}

func setInt(dst reflect.Value, text string) error {
	number, err := parseInt(text)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && dst.OverflowInt(number):
		return fmt.Errorf("%s is out of range", text)
	case err != nil:
		return fmt.Errorf("%q is not a whole number in decimal", text)
	}
	dst.SetInt(number)
	return nil
}

// parseInt reads a decimal number as everybody would: no leading zeros, which
// some readers of YAML take for octal, no sign but a minus, no underscores.
func parseInt(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > 1 && digits[0] == '0' || strings.HasPrefix(digits, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}
