package main

import (
	"slices"
	"strings"

	"github.com/hitline/hitline/router"
)

// maxPageSources bounds the sources that the status page lists.
const maxPageSources = 100

// routerSection is what the status page tells of the router.
type routerSection struct {
	Models  []modelSection `json:"models"` // by tenant and name
	Sources sourcesSection `json:"sources"`
}

type modelSection struct {
	Name         string  `json:"name"`
	Tenant       string  `json:"tenant_id"`
	Configured   bool    `json:"configured"`
	BlockSize    int     `json:"block_size"` // tokens of a hash; 0: not known yet
	Pool         *string `json:"pool"`       // whose store is asked, nil if there is none
	Holders      int     `json:"holders"`
	StaleHolders int     `json:"stale_holders"`
	Blocks       int64   `json:"blocks"`
	Entries      int64   `json:"entries"`
	Sets         int     `json:"sets"`
	Bytes        int64   `json:"bytes"`
	MaxBytes     int64   `json:"max_bytes"`
}

type sourcesSection struct {
	Total int                   `json:"total"`
	Shown int                   `json:"shown"` // in List
	List  []router.SourceStatus `json:"list"`  // stale ones first, then by name
}

// newRouterSection returns what the status page tells of models and sources.
func newRouterSection(models []router.ModelStatus, sources []router.SourceStatus) *routerSection {
	s := &routerSection{Models: []modelSection{}}
	for _, m := range models {
		s.Models = append(s.Models, modelSection{
			Name: m.Name, Tenant: m.Tenant, Configured: m.Configured, BlockSize: m.BlockSize, Pool: m.Pool, Holders: len(m.Holders), StaleHolders: m.NumStale(),
			Blocks: m.Blocks, Entries: m.Entries, Sets: m.Sets, Bytes: m.Bytes, MaxBytes: m.MaxBytes,
		})
	}
	slices.SortFunc(sources, func(a, b router.SourceStatus) int {
		if a.Stale == b.Stale {
			return strings.Compare(a.Name, b.Name)
		}
		if a.Stale {
			return -1
		}
		return 1
	})
	shown := min(len(sources), maxPageSources)
	s.Sources = sourcesSection{len(sources), shown, append([]router.SourceStatus{}, sources[:shown]...)}
	return s
}
