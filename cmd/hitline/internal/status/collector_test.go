package status

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// /status has figures of each model, and the first sources: stale ones and those whose hashes differ, then by name.
func TestStatusRouter(t *testing.T) {
	models := []router.ModelStatus{{
		ModelKey: router.ModelKey{Name: "m", Tenant: "t"}, Configured: true, BlockSize: 16, Holders: []fleet.HolderStatus{{Stale: true}, {}},
	}}
	var sources []router.SourceStatus
	for i := range maxListed + 1 {
		sources = append(sources, router.SourceStatus{Status: events.Status{Name: string(rune('a' + i)), Stale: i == 7}})
	}
	sources[8].Hashes = router.HashesDiffer
	s := newRouter(models, sources)
	text, err := json.Marshal(s.Models)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"holders":2,"stale_holders":1`)
	assert.Equal(t, maxListed+1, s.TotalSources)
	assert.Len(t, s.Sources, maxListed)
	assert.Equal(t, []string{"h", "i", "a"}, []string{s.Sources[0].Name, s.Sources[1].Name, s.Sources[2].Name})
}
