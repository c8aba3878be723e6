package statuspage

import (
	"slices"
	"strings"

	"github.com/hitline/hitline/router"
)

// maxRouterSources bounds the sources of the fleet that are listed.
const maxRouterSources = 100

// routerStatus is who holds what, in figures.
type routerStatus struct {
	Models  []routerModel  `json:"models"`  // by tenant and name
	Sources *routerSources `json:"sources"` // of KV events
}

type routerModel struct {
	Name         string  `json:"name"`
	Tenant       string  `json:"tenant"`
	Configured   bool    `json:"configured"`
	BlockSize    int     `json:"block_size"` // tokens of a hash; 0: not known yet
	Pool         *string `json:"pool"`       // whose store is asked, nil if there is none
	Holders      int     `json:"holders"`
	StaleHolders int     `json:"stale_holders"`
	Blocks       int64   `json:"blocks"`
	Entries      int64   `json:"entries"`
	HolderSets   int     `json:"holder_sets"`
	Bytes        int64   `json:"bytes"`
	MaxBytes     int64   `json:"max_bytes"`
}

type routerSources struct {
	Total int                   `json:"total"`
	Shown int                   `json:"shown"` // in List
	List  []router.SourceStatus `json:"list"`  // stale ones first, then by name
}

// currentRouter returns the status of a service.
func currentRouter(service *router.Service) *routerStatus {
	st := &routerStatus{Models: []routerModel{}}
	for _, m := range service.Models() {
		st.Models = append(st.Models, routerModel{
			Name: m.Name, Tenant: m.Tenant, Configured: m.Configured, BlockSize: m.BlockSize, Pool: m.Pool, Holders: len(m.Holders), StaleHolders: m.NumStale(),
			Blocks: m.Blocks, Entries: m.Entries, HolderSets: m.Sets, Bytes: m.Bytes, MaxBytes: m.MaxBytes,
		})
	}
	st.Sources = listSources(service.Status())
	return st
}

// listSources returns the sources that are listed.
func listSources(all []router.SourceStatus) *routerSources {
	slices.SortFunc(all, func(a, b router.SourceStatus) int {
		if a.Stale != b.Stale {
			if a.Stale {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	list := all[:min(len(all), maxRouterSources)]
	return &routerSources{Total: len(all), Shown: len(list), List: append([]router.SourceStatus{}, list...)}
}
