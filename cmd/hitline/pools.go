package main

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

// poolServices makes the services of a server's pools, over one store or, if store is nil,
// each over a memory index of its own.
type poolServices struct {
	cfg    *config.Config
	store  *remoteStore
	shared *lookup.SharedBackend // nil over memory
	memory *lookup.MemoryAccount // of what peers make the server hold

	kept map[string]*lookup.Service // by paths of pools: those that are used again, if nothing has changed; nil for none
}

func newPoolServices(cfg *config.Config, store *remoteStore, logger *slog.Logger) *poolServices {
	p := &poolServices{cfg: cfg, store: store, memory: memoryAccount(cfg, store)}
	if store != nil {
		remote := store.remote
		remote.Memory = p.memory
		p.shared = lookup.NewSharedBackend(store.Backend, remote, logger)
	}
	return p
}

// defaultPool returns the service of the server's own pool, nil if it has none.
func (p *poolServices) defaultPool() (*lookup.Service, error) {
	if !p.cfg.ServesPool() {
		return nil, nil
	}
	return p.service("pool", p.cfg.WrittenPool())
}

// namedPools returns the services of the pools that have names.
func (p *poolServices) namedPools() ([]server.ServedPool, error) {
	var pools []server.ServedPool
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Pools)) {
		service, err := p.service("pools."+name, p.cfg.Pools[name])
		if err != nil {
			return nil, err
		}
		pools = append(pools, server.ServedPool{Name: name, Service: service})
	}
	return pools, nil
}

// accept returns what makes the services of described pools, nil if none are accepted.
func (p *poolServices) accept() func(coordinator.Pool) (*lookup.Service, error) {
	if !p.cfg.Accepts() {
		return nil
	}
	return p.newService
}

// service returns the service of the pool that is configured at path.
func (p *poolServices) service(path string, pool coordinator.Pool) (*lookup.Service, error) {
	if kept := p.kept[path]; isServed(kept, pool) {
		return kept, nil
	}
	service, err := p.newService(pool)
	switch {
	case errors.Is(err, api.ErrConfig):
		return nil, p.cfg.WithOrigin("backend.memory", err)
	case err != nil:
		return nil, p.cfg.WithOrigin(path, err)
	}
	return service, nil
}

// newService returns the service of a pool.
func (p *poolServices) newService(pool coordinator.Pool) (*lookup.Service, error) {
	sc := lookup.ServiceConfig{Pool: pool, Version: buildinfo.Read().Version, Shared: p.shared}
	if p.store == nil {
		sc.Memory = indexConfig(p.cfg)
		return lookup.NewService(sc)
	}
	var err error
	if sc.Backend, err = p.store.forPool(pool); err != nil {
		return nil, err
	}
	return lookup.NewService(sc)
}

// indexConfig returns the configuration of each memory index.
func indexConfig(cfg *config.Config) index.Config {
	memory := cfg.Backend.Memory
	return index.Config{
		MaxBytes: int64(memory.MaxBytes) / cfg.MemoryShares(), MaxEntries: memory.MaxEntries,
	}
}
