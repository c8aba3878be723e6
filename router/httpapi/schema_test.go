package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// document is an OpenAPI text, as far as these tests read it.
type document map[string]any

func parseOpenAPI(t testing.TB) document {
	t.Helper()
	var d document
	require.NoError(t, yaml.Unmarshal(OpenAPI, &d))
	return d
}

// at returns what is at keys, nil if there is nothing.
func at(value any, keys ...string) any {
	for _, key := range keys {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[key]
	}
	return value
}

// resolve follows a $ref.
func (d document) resolve(schema any) any {
	ref, ok := at(schema, "$ref").(string)
	if !ok {
		return schema
	}
	return d.resolve(at(map[string]any(d), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))
}

// keywords are those that validate knows.
var keywords = []string{
	"$ref", "description", "type", "properties", "required", "additionalProperties", "items", "enum", "minimum", "maximum", "minLength",
	"maxLength", "pattern", "oneOf", "anyOf", "default", "format",
}

// checkSchemas fails for schemas that validate would not understand.
func (d document) checkSchemas(t *testing.T, where string, schema any) {
	s, ok := schema.(map[string]any)
	require.True(t, ok, "%s: %T", where, schema)
	for key, value := range s {
		require.Contains(t, keywords, key, where)
		switch key {
		case "$ref":
			require.NotNil(t, d.resolve(schema), "%s: %v", where, value)
		case "properties":
			for name, property := range value.(map[string]any) {
				d.checkSchemas(t, where+"."+name, property)
			}
		case "items":
			d.checkSchemas(t, where+"[]", value)
		case "additionalProperties":
			if _, ok := value.(bool); !ok {
				d.checkSchemas(t, where+".*", value)
			}
		case "oneOf", "anyOf":
			for i, one := range value.([]any) {
				d.checkSchemas(t, fmt.Sprint(where, "/", key, i), one)
			}
		}
	}
}

// validateJSON returns what is wrong with a JSON text by a schema, nil if nothing is.
func (d document) validateJSON(schema any, text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return d.validate("$", schema, value)
}

// validate returns what is wrong with a value by a schema.
func (d document) validate(where string, schema, value any) error {
	if d.resolve(schema) == nil {
		return fmt.Errorf("%s: no schema", where)
	}
	s := d.resolve(schema).(map[string]any)
	if err := checkType(s["type"], value); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if list, ok := s["enum"].([]any); ok && !slices.Contains(list, value) {
		return fmt.Errorf("%s: %v is not one of %v", where, value, list)
	}
	for key, count := range map[string]func(int, int) bool{
		"oneOf": func(valid, _ int) bool { return valid == 1 }, "anyOf": func(valid, _ int) bool { return valid > 0 },
	} {
		list, ok := s[key].([]any)
		valid := 0
		for _, one := range list {
			if d.validate(where, one, value) == nil {
				valid++
			}
		}
		if ok && !count(valid, len(list)) {
			return fmt.Errorf("%s: %d of %s fit", where, valid, key)
		}
	}
	switch v := value.(type) {
	case json.Number:
		return checkRange(where, s, v)
	case string:
		return checkText(where, s, v)
	case []any:
		for i, element := range v {
			if err := d.validate(fmt.Sprintf("%s[%d]", where, i), s["items"], element); err != nil {
				return err
			}
		}
	case map[string]any:
		return d.validateObject(where, s, v)
	}
	return nil
}

func (d document) validateObject(where string, s, v map[string]any) error {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Errorf("%s: %s is missing", where, name)
		}
	}
	for name, field := range v {
		schema := at(s, "properties", name)
		if schema == nil {
			switch more := s["additionalProperties"].(type) {
			case nil:
				continue
			case bool:
				if !more {
					return fmt.Errorf("%s: %s is not described", where, name)
				}
				continue
			default:
				schema = more
			}
		}
		if err := d.validate(where+"."+name, schema, field); err != nil {
			return err
		}
	}
	return nil
}

func checkType(kind, value any) error {
	ok := true
	switch v := value.(type) {
	case nil:
		ok = false
	case bool:
		ok = kind == nil || kind == "boolean"
	case string:
		ok = kind == nil || kind == "string"
	case []any:
		ok = kind == nil || kind == "array"
	case map[string]any:
		ok = kind == nil || kind == "object"
	case json.Number:
		_, isInteger := new(big.Int).SetString(v.String(), 10)
		ok = kind == nil || kind == "number" || kind == "integer" && isInteger
	}
	if !ok {
		return fmt.Errorf("%v is no %v", value, kind)
	}
	return nil
}

func checkRange(where string, s map[string]any, v json.Number) error {
	n, _ := new(big.Float).SetPrec(128).SetString(v.String())
	for key, sign := range map[string]int{"minimum": -1, "maximum": 1} {
		if s[key] == nil {
			continue
		}
		limit, ok := new(big.Float).SetPrec(128).SetString(fmt.Sprint(s[key]))
		if !ok || n.Cmp(limit) == sign {
			return fmt.Errorf("%s: %s is beyond the %s %v", where, v, key, s[key])
		}
	}
	return nil
}

func checkText(where string, s map[string]any, v string) error {
	n := utf8.RuneCountInString(v)
	if least, ok := s["minLength"].(uint64); ok && n < int(least) {
		return fmt.Errorf("%s: %d characters", where, n)
	}
	if most, ok := s["maxLength"].(uint64); ok && n > int(most) {
		return fmt.Errorf("%s: %d characters", where, n)
	}
	if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
		return fmt.Errorf("%s: %.40q is not like %s", where, v, pattern)
	}
	return nil
}

// The validator refuses what it should.
func TestValidate(t *testing.T) {
	d := parseOpenAPI(t)
	for name, schema := range at(map[string]any(d), "components", "schemas").(map[string]any) {
		d.checkSchemas(t, name, schema)
	}
	schema := func(name string) any { return at(map[string]any(d), "components", "schemas", name) }
	for _, test := range []struct {
		name, text string
		valid      bool
	}{
		{"Answer", `{"default": {}}`, true},
		{"Answer", `{"default": {"a": {"longest_matched": 1, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {}, "X": 1}}, "loadable_tokens": 3}`, true},
		{"Answer", `{"default": {"a": {"longest_matched": 1, "GPU": 0, "CPU": 0, "DISK": 0}}}`, false},
		{"Answer", `{"default": {"a": {"longest_matched": 1, "GPU": -1, "CPU": 0, "DISK": 0, "DP": {}}}}`, false},
		{"Answer", `{"default": {"a": {"longest_matched": 1, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": "1"}}}}`, false},
		{"Answer", `{"default": {"a": {"longest_matched": 1.5, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {}}}}`, false},
		{"Answer", `{"loadable_tokens": -3}`, false},
		{"Error", `{"error": {"code": "a", "message": "b"}}`, true},
		{"Error", `{"error": {"code": "a"}}`, false},
		{"Error", `{"error": {"code": "a", "message": ""}}`, false},
		{"Error", `{"error": "text"}`, false},
		{"Hashes", `[1, -1, 18446744073709551615, "0011223344556677"]`, true},
		{"Hashes", `[18446744073709551616]`, false},
		{"Hashes", `["00112233445566"]`, false},
		{"Changed", `{"status": "ok", "removed_instances": ["a|b|0"]}`, true},
		{"Changed", `{"status": "ok", "removed_instances": ["a"]}`, false},
		{"Changed", `{"status": "ok", "other": 1}`, false},
		{"Query", `{"seq_hashes": []}`, true},
		{"Query", `{}`, false},
		{"Predict", `{"instance_id": "a", "seq_hashes": [], "token_ids": []}`, false},
	} {
		err := d.validateJSON(schema(test.name), []byte(test.text))
		require.Equal(t, test.valid, err == nil, "%s %s: %v", test.name, test.text, err)
	}
}
