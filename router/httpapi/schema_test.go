package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
	require.NoError(t, yaml.Unmarshal(openAPI, &d))
	return d
}

// at returns what is at keys, nil if there is nothing.
func at(value any, keys ...string) any {
	for _, key := range keys {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// validateJSON returns what is wrong with a JSON text by a schema, nil if nothing is.
func (d document) validateJSON(schema any, text []byte) error {
	var value any
	return errors.Join(json.Unmarshal(text, &value), d.validate("$", schema, value))
}

// validate returns what is wrong with a value by a schema. It fails for keywords that it does not know.
func (d document) validate(where string, schema, value any) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not described", where)
	}
	if kind, ok := s["type"].(string); ok && !isType(kind, value) {
		return fmt.Errorf("%s: %.100v is no %s", where, value, kind)
	}
	for key, want := range s {
		ok, err := true, error(nil)
		switch key {
		case "type", "description", "default", "format", "properties", "additionalProperties":
		case "$ref":
			err = d.validate(where, at(map[string]any(d), strings.Split(want.(string), "/")[1:]...), value)
		case "enum":
			ok = slices.Contains(want.([]any), value)
		case "minimum", "maximum":
			limit, _ := json.Number(fmt.Sprint(want)).Float64()
			ok = value == limit || (value.(float64) > limit) == (key == "minimum")
		case "minLength", "maxLength":
			n := uint64(utf8.RuneCountInString(value.(string)))
			ok = n == want || (n > want.(uint64)) == (key == "minLength")
		case "pattern":
			ok = regexp.MustCompile(want.(string)).MatchString(value.(string))
		case "oneOf", "anyOf":
			fit := 0
			for _, one := range want.([]any) {
				if d.validate(where, one, value) == nil {
					fit++
				}
			}
			ok = fit == 1 || fit > 1 && key == "anyOf"
		case "items":
			for i, element := range value.([]any) {
				err = errors.Join(err, d.validate(fmt.Sprintf("%s[%d]", where, i), want, element))
			}
		case "required":
			for _, name := range want.([]any) {
				_, there := value.(map[string]any)[name.(string)]
				ok = ok && there
			}
		default:
			return fmt.Errorf("%s: the keyword %s is unknown", where, key)
		}
		if !ok || err != nil {
			return fmt.Errorf("%s: %.100v is not as %s %v: %w", where, value, key, want, err)
		}
	}
	return d.validateFields(where, s, value)
}

// validateFields is validate for the fields of an object.
func (d document) validateFields(where string, s map[string]any, value any) (err error) {
	fields, _ := value.(map[string]any)
	for name, field := range fields {
		schema, more := at(s, "properties", name), s["additionalProperties"]
		if schema == nil {
			schema = more
		}
		if schema != nil {
			err = errors.Join(err, d.validate(where+"."+name, schema, field))
		}
	}
	return err
}

func isType(kind string, value any) bool {
	switch v := value.(type) {
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case []any:
		return kind == "array"
	case map[string]any:
		return kind == "object"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	}
	return false
}

// The validator refuses what it should.
func TestValidate(t *testing.T) {
	d := parseOpenAPI(t)
	for text, valid := range map[string]bool{
		`Answer {"default": {}}`: true, `Answer {"loadable_tokens": -3}`: false, `Answer {"default": {"a": 1}}`: false, `Answer {"default": 1}`: false,
		`Answer {"default": {"a": {"longest_matched": 1, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {}, "X": 1}}, "loadable_tokens": 3}`: true,
		`Answer {"default": {"a": {"longest_matched": 1, "GPU": 0, "CPU": 0, "DISK": 0}}}`:                                         false,
		`Answer {"default": {"a": {"longest_matched": 1.5, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {}}}}`:                             false,
		`Answer {"default": {"a": {"longest_matched": 1, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": "1"}}}}`:                       false,
		`Error {"error": {"code": "a", "message": "b"}}`:                                                                           true, `Error {"error": {"code": "a"}}`: false, `Error {"error": "text"}`: false,
		`Error {"error": {"code": "a", "message": ""}}`: false, `Error {"error": {"code": "a", "message": "b", "x": 1}}`: false,
		`Name "org/é b"`: true, `Name ""`: false, `Name "a\u202eb"`: false, `Name "a\u00a0b"`: false, `Text ""`: true,
		`Hashes [1, -1, "0011223344556677"]`: true, `Hashes [1e300]`: false, `Hashes ["00112233445566"]`: false,
		`Status {"status": "ok", "removed_instances": ["a|b|0"]}`: true, `Status {"status": "ok", "removed_instances": ["a"]}`: false,
		`Query {"seq_hashes": []}`: true, `Query {}`: false, `Predict {"instance_id": "a", "seq_hashes": [], "token_ids": []}`: false,
	} {
		name, text, _ := strings.Cut(text, " ")
		err := d.validateJSON(at(map[string]any(d), "components", "schemas", name), []byte(text))
		require.Equal(t, valid, err == nil, "%s %s: %v", name, text, err)
	}
}
