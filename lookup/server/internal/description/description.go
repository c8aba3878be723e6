// Package description reads the JSON of a pool request.
package description

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
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/printable"
)

// Description is what a pool request says.
type Description struct {
	Name     string // of the pool, may be empty
	HasName  bool
	OnlyName bool   // it says nothing else of the pool
	Asker    string // who asks by the connection, "" if the client does not say

	pool coordinator.Pool
}

// Errors of Rules, with what they bound: so a description takes some milliseconds of work and some megabytes.
var (
	ErrTooLarge = errors.New("too many groups and ranks for a described pool") // MaxRanks
	ErrText     = errors.New("too long for a described pool")                  // MaxText
)

// Bounds of a description.
const (
	MaxRanks = 4096 // groups times ranks: each takes a key prefix
	MaxText  = 512  // bytes of a text: model_name and cache_prefix are in each prefix
)

// Parse decodes the JSON of a pool request. Peers get the text of its error.
func Parse(text []byte) (*Description, error) {
	d, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("the description of the pool cannot be read: %s", describeJSONError(err))
	}
	return d, nil
}

func parse(text []byte) (*Description, error) {
	var object struct {
		Name   *string         `json:"name"`
		Client json.RawMessage `json:"client"`
		coordinator.Pool
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("text behind the object")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, "client") })
	d := &Description{pool: object.Pool, Asker: askerOf(object.Client)}
	if object.Name != nil {
		d.Name, d.HasName, d.OnlyName = *object.Name, true, len(fields) == 1
	}
	return d, nil
}

// Rules returns the rules of the described pool.
func (d *Description) Rules() (*coordinator.Coordinator, error) {
	if err := d.checkSize(); err != nil {
		return nil, err
	}
	rules, err := coordinator.New(d.pool)
	if field := (*fielderror.Error)(nil); errors.As(err, &field) {
		err = field.Err
	}
	if err != nil {
		return nil, fmt.Errorf("the described pool: %w", err)
	}
	return rules, nil
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

// checkSize returns an error if a described pool exceeds the bounds.
func (d *Description) checkSize() error {
	p := &d.pool
	for _, text := range []struct{ field, value string }{
		{"model_name", p.ModelName}, {"cache_prefix", p.CachePrefix}, {"kv_cache_layout", p.KVCacheLayout}, {"vllm", p.VLLM},
	} {
		if len(text.value) > MaxText {
			return fmt.Errorf("%s is %w: %d bytes, at most %d", text.field, ErrText, len(text.value), MaxText)
		}
	}
	if n := p.NumRanks(); n > MaxRanks {
		return fmt.Errorf("%w: %d, at most %d", ErrTooLarge, n, MaxRanks)
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
