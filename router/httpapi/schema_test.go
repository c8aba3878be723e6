package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/client"
	"github.com/hitline/hitline/router/fleet"
)

// replyTypes has the type that each operation writes as JSON. Answers are written by hand.
var replyTypes = map[string]reflect.Type{
	"/query": nil, "/query_by_hash": nil, "/predict": reflect.TypeFor[statusReply](), "/register": reflect.TypeFor[statusReply](),
	"/unregister": reflect.TypeFor[statusReply](), "/services": reflect.TypeFor[servicesReply](), "/health": reflect.TypeFor[statusReply](),
	"/ready": reflect.TypeFor[statusReply](),
}

// The schema of each reply has the fields that are written, no others, and requires those that are always there.
func TestReplySchemas(t *testing.T) {
	d := parseOpenAPI(t)
	for _, op := range operations {
		for status, response := range at(map[string]any(d), "paths", op.path, strings.ToLower(op.method), "responses").(map[string]any) {
			schema := at(response, "content", "application/json", "schema")
			switch typ, ok := replyTypes[op.path]; {
			case status != "200":
				d.checkType(t, op.path+" "+status, schema, reflect.TypeFor[struct {
					Error refusal `json:"error"`
				}]())
			case !ok:
				require.Nil(t, schema, op.path)
			case typ != nil:
				d.checkType(t, op.path, schema, typ)
				if op.path == "/services" {
					d.checkType(t, op.path+" of the client", schema, reflect.TypeFor[client.Services]())
				}
			default:
				d.checkAnswer(t, schema)
			}
		}
	}
}

// resolve returns the schema that a reference means.
func (d document) resolve(schema any) any {
	if ref, ok := at(schema, "$ref").(string); ok {
		return at(map[string]any(d), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return schema
}

// properties returns the names of a schema's properties.
func properties(schema any) []string {
	fields, _ := at(schema, "properties").(map[string]any)
	return slices.Collect(maps.Keys(fields))
}

// checkType compares a schema with the Go type that is written as it. what is the path to it.
func (d document) checkType(t *testing.T, what string, schema any, typ reflect.Type) {
	t.Helper()
	schema = d.resolve(schema)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	want := map[reflect.Kind]string{reflect.Bool: "boolean", reflect.Slice: "array", reflect.Struct: "object", reflect.String: "string"}[typ.Kind()]
	switch isText := typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()); {
	case isText:
		want = "string"
	case typ.Kind() == reflect.Slice:
		d.checkType(t, what+"[]", at(schema, "items"), typ.Elem())
	case typ.Kind() == reflect.Struct:
		d.checkFields(t, what, schema, typ)
	case want == "":
		want = "integer"
	}
	require.Equal(t, want, at(schema, "type"), what)
}

// checkFields compares the properties of a schema with the fields of a struct.
func (d document) checkFields(t *testing.T, what string, schema any, typ reflect.Type) {
	t.Helper()
	var names, always []any
	for _, field := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || !field.IsExported() || name == "-" {
			continue
		}
		names = append(names, name)
		if options == "" {
			always = append(always, name)
		}
		d.checkType(t, what+" "+name, at(schema, "properties", name), field.Type)
	}
	require.ElementsMatch(t, names, properties(schema), what)
	require.ElementsMatch(t, always, at(schema, "required"), what)
}

// checkAnswer compares the schema of an answer with one that has all that there can be.
func (d document) checkAnswer(t *testing.T, schema any) {
	id := fleet.ID{Engine: "e"}
	full := answer{index: map[string]int{}, Answer: router.Answer{LoadableTokens: 1, LoadableUnknown: "why", KVHints: &router.KVHints{From: id}}}
	full.Holders = []fleet.Prefix{{ID: id, Tokens: 16, Media: []fleet.MediumPrefix{{Medium: "GPU", Tokens: 16}, {Medium: "STORAGE", Tokens: 16}}}}
	for rank, hashes := range []router.Agreement{router.HashesUnchecked, router.HashesDiffer} {
		full.Unsure = append(full.Unsure, router.Unsure{ID: fleet.ID{Engine: "e", Rank: rank}, Stale: true, Incomplete: true, Hashes: hashes})
	}
	var reply bytes.Buffer
	require.NoError(t, full.write(&reply, router.DefaultTenant))
	var got map[string]any
	require.NoError(t, json.Unmarshal(reply.Bytes(), &got))

	schema = d.resolve(schema)
	engine := d.resolve(at(schema, "properties", "instances", "additionalProperties"))
	inEngine := slices.Collect(maps.Keys(at(got, "instances", "e").(map[string]any)))
	require.ElementsMatch(t, inEngine, properties(engine))
	require.ElementsMatch(t, inEngine, append(at(engine, "required").([]any), "media"))
	for _, reasons := range []any{
		at(schema, "properties", "unsure", "additionalProperties"),
		at(schema, "properties", "unsure_ranks", "additionalProperties", "additionalProperties"),
	} {
		require.ElementsMatch(t, append(at(got, "unsure", "e").([]any), "unknown"), at(reasons, "items", "examples"))
	}
	require.JSONEq(t, `{"e": {"0": ["incomplete", "stale", "unchecked"], "1": ["differ", "incomplete", "stale"]}}`, marshal(t, got["unsure_ranks"]))
	d.checkType(t, "kv_hints", at(schema, "properties", "kv_hints", "additionalProperties"), reflect.TypeFor[router.KVHints]())
	require.ElementsMatch(t, slices.Collect(maps.Keys(got)), properties(schema))
	require.ElementsMatch(t, []any{"instances", "tenant_id"}, at(schema, "required"))
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}
