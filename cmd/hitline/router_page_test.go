package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// The page has figures of each model, and the first sources: stale ones and those whose hashes differ, then by name.
func TestRouterSection(t *testing.T) {
	s := newRouterSection(nil, nil)
	assert.Equal(t, &routerSection{[]modelSection{}, sourcesSection{0, 0, []router.SourceStatus{}}}, s, "lists in JSON, not null")
	pool := ""
	models := []router.ModelStatus{{
		ModelKey: router.ModelKey{Name: "m", Tenant: "t"}, Configured: true, BlockSize: 16, Pool: &pool, Holders: []fleet.HolderStatus{{Stale: true}, {}},
		Stats: fleet.Stats{Holders: 2, Blocks: 3, Entries: 4, Sets: 5, Bytes: 6, MaxBytes: 7},
	}}
	var sources []router.SourceStatus
	for i := range maxPageSources + 1 {
		sources = append(sources, router.SourceStatus{Status: events.Status{Name: fmt.Sprintf("%03d", i), Stale: i == 7}})
	}
	sources[8].Hashes = router.HashesDiffer
	s = newRouterSection(models, sources)
	text, err := json.Marshal(s.Models)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"model": "m", "tenant_id": "t", "block_size": 16, "configured": true, "pool": "", "holders": 2, "stale_holders": 1,
		"blocks": 3, "entries": 4, "sets": 5, "bytes": 6, "max_bytes": 7}]`, string(text))
	assert.Equal(t, maxPageSources+1, s.Sources.Total)
	assert.Equal(t, maxPageSources, s.Sources.Shown)
	assert.Len(t, s.Sources.List, maxPageSources)
	for i, want := range map[int]string{0: "007", 1: "008", 2: "000", 99: "099"} {
		assert.Equal(t, want, s.Sources.List[i].Name)
	}
}
