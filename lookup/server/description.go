package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
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

// maxClientText is the length in bytes of the longest text of a client that is kept.
const maxClientText = 128

// clientInfo is what the client of a connection has said of itself with its pool. It names the asker, and has no
// part in any answer. What the client has not said is empty.
type clientInfo struct {
	process    string // random, of one operating-system process
	instanceID string // of the engine
	role       string // of the engine, such as kv_consumer
	rank       string // data-parallel, in decimal
}

// asker returns who asks by a connection of the client, "" if it has not said so.
func (c *clientInfo) asker() string {
	const most = 64 // bytes of each text
	short := func(text string) string { return printable.Cut(text, most) }
	if c.process != "" && c.instanceID != "" {
		return short(c.instanceID) + "/" + short(c.process)
	}
	return short(c.process)
}

// parseClient returns what the server keeps of the object client of a pool request, whose keys are free. Values of
// another type or a greater length are not kept, and no mistake: the client may be of any version.
func parseClient(object json.RawMessage) (info clientInfo) {
	var values map[string]json.RawMessage
	if json.Unmarshal(object, &values) != nil { // also if there is none
		return info
	}
	text := func(key string) string {
		var value string
		if json.Unmarshal(values[key], &value) != nil || len(value) > maxClientText {
			return ""
		}
		return value
	}
	info.process, info.instanceID, info.role = text("process"), text("instance_id"), text("role")
	var rank uint32
	if value, ok := values["rank"]; ok && json.Unmarshal(value, &rank) == nil && string(value) != "null" {
		info.rank = strconv.FormatUint(uint64(rank), 10)
	}
	return info
}
