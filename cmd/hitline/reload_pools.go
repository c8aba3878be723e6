package main

import (
	"fmt"
	"reflect"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// servedPools are the services of the configured pools.
type servedPools struct {
	services *poolServices
	own      *lookup.Service // nil if there is none
	named    []server.ServedPool
}

// with returns those of another configuration. Pools that it describes alike keep their services.
func (p *servedPools) with(cfg *config.Config) (*servedPools, error) {
	services := *p.services
	services.cfg, services.kept = cfg, map[string]*lookup.Service{}
	if p.own != nil {
		services.kept["pool"] = p.own
	}
	for _, named := range p.named {
		services.kept["pools."+named.Name] = named.Service
	}
	next := &servedPools{services: &services}
	var err error
	if next.own, err = services.defaultPool(); err != nil {
		return nil, err
	}
	next.named, err = services.namedPools()
	services.kept = nil
	return next, err
}

// isServed reports whether the service of a configured pool is kept: its rules are those that it has.
func isServed(service *lookup.Service, pool coordinator.Pool) bool {
	rules, err := coordinator.New(pool)
	return err == nil && service != nil && reflect.DeepEqual(rules.Pool(), service.Pool())
}

// shareMemory divides backend.memory.max_bytes anew: pools that were there before keep at least what their entries need, and
// new ones get an equal part, or what is left. It returns what those have if that is less, 0 if it is not.
func (p *servedPools) shareMemory(before *servedPools, all []server.ServedPool) (less int64) {
	if p.services.store != nil {
		return 0
	}
	had := map[*lookup.Service]bool{before.own: true}
	for _, named := range before.named {
		had[named.Service] = true
	}
	share := indexConfig(p.services.cfg).MaxBytes
	left := int64(p.services.cfg.Backend.Memory.MaxBytes)
	var added []*lookup.Service
	for _, pool := range all {
		if had[pool.Service] || pool.Described {
			left -= pool.Service.Memory().Limit(share)
		} else {
			added = append(added, pool.Service)
		}
	}
	if len(added) == 0 {
		return 0
	}
	bound := max(min(share, left/int64(len(added))), index.MinMaxBytes)
	for _, service := range added {
		service.Memory().Limit(bound)
	}
	if bound < share {
		return bound
	}
	return 0
}

// applyPools puts the pools of c into effect, and returns a text for each pool that is gone.
func (r *reloader) applyPools(c *change) (gone []string, err error) {
	if c.pools == nil {
		return nil, nil
	}
	removed, err := r.srv.SetPools(c.pools.own, c.pools.named, c.pools.services.accept())
	if err != nil {
		return nil, err
	}
	if bytes := c.pools.shareMemory(r.pools, r.srv.Pools()); bytes > 0 {
		r.logger.Warn("new pools have what the others leave of backend.memory.max_bytes, until a restart", "max_bytes", config.Size(bytes).String())
	}
	r.pools = c.pools
	for _, pool := range removed {
		name := pool.Name
		if name == "" {
			name = "pool"
		}
		gone = append(gone, fmt.Sprintf("%s (%d blocks)", name, pool.Blocks))
	}
	return gone, nil
}

// applyLimits puts the limits of c into effect.
func (r *reloader) applyLimits(c *change) error {
	if c.cfg.Limits == r.cfg.Limits {
		return nil
	}
	services := r.pools.services
	services.memory.SetMax(memoryBound(c.cfg, services.store))
	return r.srv.SetLimits(serverLimits(c.cfg.Limits))
}
