package fakeserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/router/client"
)

// The documents have no fields but those of this release.
func TestDocuments(t *testing.T) {
	for name, into := range map[string]any{
		"services": &client.Services{}, "ping": &api.Instance{}, "pool": &api.Pool{}, "stat": &api.Stat{}, "explain": &api.Explanation{},
		"refusal": &api.Refusal{}, "partly done": &api.Refusal{},
	} {
		decoder := json.NewDecoder(strings.NewReader(replies[name].document))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(into), name)
	}
}

// Every object grows but maps and what is opaque.
func TestGrown(t *testing.T) {
	r := reply{`{"a": {"b": [{}], "m": {"k": {}}}, "o": {"x": {}}}`, []string{"a.m"}, "o"}
	var got any
	require.NoError(t, json.Unmarshal(r.grown(), &got))
	var shrink func(value any) any
	shrink = func(value any) any { // counts the later fields
		switch v := value.(type) {
		case []any:
			return []any{shrink(v[0])}
		case map[string]any:
			later := 0
			for key, element := range v {
				if strings.HasPrefix(key, "later_") {
					delete(v, key)
					later++
				} else {
					v[key] = shrink(element)
				}
			}
			if later > 0 {
				v["later"] = later
			}
			return v
		}
		return value
	}
	text, err := json.Marshal(shrink(got))
	require.NoError(t, err)
	require.JSONEq(t, `{"later": 6, "a": {"later": 6, "b": [{"later": 6}], "m": {"k": {"later": 6}}}, "o": {"x": {}}}`, string(text))
}
