package main

import "github.com/hitline/hitline/router"

// maxPageSources bounds the sources that the status page lists.
const maxPageSources = 100

// routerSection is what the status page tells of the router.
type routerSection struct {
	Models  []modelSection `json:"models"` // by tenant and name
	Sources sourcesSection `json:"sources"`
}

// modelSection is a model with numbers of its holders, which may be thousands.
type modelSection struct {
	router.ModelStatus
	Holders      int `json:"holders"`
	StaleHolders int `json:"stale_holders"`
}

type sourcesSection struct {
	Total int                   `json:"total"`
	Shown int                   `json:"shown"` // in List
	List  []router.SourceStatus `json:"list"`  // those that tokens find nothing of first, then by name
}

// newRouterSection returns what the status page tells of models, and of sources, which are by name.
func newRouterSection(models []router.ModelStatus, sources []router.SourceStatus) *routerSection {
	s := &routerSection{[]modelSection{}, sourcesSection{Total: len(sources), List: []router.SourceStatus{}}}
	for _, m := range models {
		s.Models = append(s.Models, modelSection{m, len(m.Holders), m.NumStale()})
	}
	for _, useless := range []bool{true, false} {
		for _, st := range sources {
			if (st.Stale || st.Hashes == router.HashesDiffer) == useless && s.Sources.Shown < maxPageSources {
				s.Sources.List = append(s.Sources.List, st)
				s.Sources.Shown++
			}
		}
	}
	return s
}
