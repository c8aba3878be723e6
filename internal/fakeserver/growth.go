package fakeserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// EachGrowth runs a test with a server of this release, and with one whose replies are grown. What it returns must be equal.
func EachGrowth(t *testing.T, what func(t *testing.T, s *Server) string) {
	t.Helper()
	now := what(t, Start(t, Config{}))
	if later := what(t, Start(t, Config{Grown: true})); later != now {
		t.Errorf("a later server is read as\n%s\nand one of this release as\n%s", later, now)
	}
}

// JSON returns a value as a line.
func JSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// reply is a document that a server sends.
type reply struct {
	document string
	maps     []string // paths of objects whose keys are no fields; * is for any of those
	opaque   string   // path of what clients hand on
}

// later are the fields with which an object grows.
var later = map[string]string{
	"later_null": `null`, "later_true": `true`, "later_number": `-1.5e300`, "later_text": `"later\u0000"`,
	"later_list": `[{"a": 1}, []]`, "later_object": `{"a": {"b": []}}`,
}

// grown returns the document with more fields in every object whose keys are fields.
func (r reply) grown() []byte {
	var value any
	decoder := json.NewDecoder(strings.NewReader(r.document))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		panic(fmt.Sprintf("%v: %s", err, r.document))
	}
	r.grow("", value)
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// grow adds fields to the objects in a value, which is at a path.
func (r reply) grow(path string, value any) {
	list, _ := value.([]any)
	for _, element := range list {
		r.grow(path+"[]", element)
	}
	object, isObject := value.(map[string]any)
	if !isObject || r.opaque == path && path != "" {
		return
	}
	isMap := slices.Contains(r.maps, path)
	for key, element := range object {
		if isMap {
			key = "*"
		}
		r.grow(strings.TrimPrefix(path+"."+key, "."), element)
	}
	for key, text := range later {
		if !isMap {
			object[key] = json.RawMessage(text)
		}
	}
}
