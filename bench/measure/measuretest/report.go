package measuretest

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys returns the keys of a report in JSON, sorted.
func Keys(t *testing.T, report any) []string {
	t.Helper()
	text, err := json.Marshal(report)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	return slices.Sorted(maps.Keys(got))
}
