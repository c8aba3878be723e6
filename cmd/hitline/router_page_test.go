package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// The page has figures of each model, and the first sources: stale ones, then by name.
func TestRouterSection(t *testing.T) {
	s := newRouterSection(nil, nil)
	assert.Equal(t, &routerSection{[]modelSection{}, sourcesSection{0, 0, []router.SourceStatus{}}}, s, "lists in JSON, not null")
	pool := "p"
	models := []router.ModelStatus{{
		ModelKey: router.ModelKey{Name: "m", Tenant: "t"}, Configured: true, BlockSize: 16, Pool: &pool, Holders: []fleet.Status{{Stale: true}, {}},
		Stats: fleet.Stats{Holders: 2, Blocks: 3, Entries: 4, Sets: 5, Bytes: 6, MaxBytes: 7},
	}}
	var sources []router.SourceStatus
	for i := range maxPageSources + 1 {
		sources = append(sources, router.SourceStatus{Status: events.Status{Name: fmt.Sprintf("%03d", maxPageSources-i), Stale: i == 7}})
	}
	s = newRouterSection(models, sources)
	assert.Equal(t, []modelSection{{"m", "t", true, 16, &pool, 2, 1, 3, 4, 5, 6, 7}}, s.Models)
	assert.Equal(t, maxPageSources+1, s.Sources.Total)
	assert.Equal(t, maxPageSources, s.Sources.Shown)
	assert.Len(t, s.Sources.List, maxPageSources)
	for i, want := range map[int]string{0: "093", 1: "000", 99: "099"} {
		assert.Equal(t, want, s.Sources.List[i].Name)
	}
}
