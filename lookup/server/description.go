package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/printable"
)

// The JSON of a pool request, and what it may say.

// description is the JSON of a pool request: the fields of the pool, its name, and what the client says of itself.
type description struct {
	Name   *string         `json:"name"`
	Client json.RawMessage `json:"client"`
	coordinator.Pool
}

// parseDescription decodes the JSON of a pool request. onlyName says that it has no field of a pool, but a name.
func parseDescription(text []byte) (d description, onlyName bool, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return d, false, err
	}
	if decoder.More() {
		return d, false, fmt.Errorf("text behind the object")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return d, false, err
	}
	maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, "client") })
	return d, len(fields) == 1 && d.Name != nil, nil
}

// describeJSONError returns what a peer needs to know of an error of package json.
func describeJSONError(err error) string {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		if mistyped.Field == "" {
			return fmt.Sprintf("a JSON %s, and not an object", mistyped.Value)
		}
		return fmt.Sprintf("%s is a JSON %s, want %s", strings.TrimPrefix(mistyped.Field, "Pool."), mistyped.Value, jsonTypeName(mistyped.Type))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// jsonTypeName names the JSON that a field of a description takes.
func jsonTypeName(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "an object"
	default:
		return "a whole number"
	}
}

// Bounds of a description, so that it takes some milliseconds of work and some megabytes.
const (
	maxDescribedRanks = 4096 // groups times ranks: each takes a key prefix
	maxDescribedText  = 512  // bytes of a text: model_name and cache_prefix are in each prefix
)

// checkSize returns an error if a described pool exceeds the bounds.
func checkSize(p *coordinator.Pool) error {
	for _, text := range []struct{ field, value string }{
		{"model_name", p.ModelName}, {"cache_prefix", p.CachePrefix}, {"kv_cache_layout", p.KVCacheLayout}, {"vllm", p.VLLM},
	} {
		if len(text.value) > maxDescribedText {
			return fmt.Errorf("%s is %w: %d bytes, at most %d", text.field, errPoolText, len(text.value), maxDescribedText)
		}
	}
	if n := p.NumRanks(); n > maxDescribedRanks {
		return fmt.Errorf("%w: %d, at most %d", errPoolTooLarge, n, maxDescribedRanks)
	}
	return nil
}

// maxClientText is the length in bytes of the longest text of a client that is read.
const maxClientText = 128

// askerOf returns who asks by a connection, as the object client of a pool request says it, "" if it does not: its
// process, which is random, and the instance of the engine. The keys of the object are free. A text of another type or
// a greater length is left out, and no mistake: the client may be of any version.
func askerOf(client json.RawMessage) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(client, &values) != nil { // also if there is none
		return ""
	}
	text := func(key string) string {
		const most = 64 // bytes
		var value string
		if json.Unmarshal(values[key], &value) != nil || len(value) > maxClientText {
			return ""
		}
		return printable.Cut(value, most)
	}
	process, instance := text("process"), text("instance_id")
	if process != "" && instance != "" {
		return instance + "/" + process
	}
	return process
}
