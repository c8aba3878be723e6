package server

import (
	"fmt"
	"runtime"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
)

// ServedPool is a pool that a server serves.
type ServedPool struct {
	Name    string // "" for the server's own
	Service *lookup.Service

	// Described says that a client has described the pool. The server sets it, and ignores that of Config.Pools.
	Described bool
}

// GonePool is a pool that SetPools has removed.
type GonePool struct {
	Name   string // "" for the server's own
	Blocks int64  // entries of its memory index, which nobody finds any more; 0 over a store
}

// configured returns the pools of a configuration by their names: of those that there are already what is served.
func (ps *pools) configured(own *lookup.Service, named []ServedPool, accept func(coordinator.Pool) (*lookup.Service, error)) (map[string]*pool, error) {
	if own == nil && len(named) == 0 && accept == nil {
		return nil, fmt.Errorf("%w: no service", api.ErrConfig)
	}
	all := map[string]*pool{}
	if own != nil {
		all[""] = newPool("", own)
	}
	for _, p := range named {
		if err := ps.checkNamed(p, all); err != nil {
			return nil, err
		}
		all[p.Name] = newPool(p.Name, p.Service)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for name, p := range all {
		if now := ps.byName[name]; now != nil && !now.described && now.service == p.service {
			all[name] = now
		}
	}
	return all, nil
}

// checkNamed returns an error if a pool cannot be served beside others.
func (ps *pools) checkNamed(named ServedPool, others map[string]*pool) error {
	err := CheckPoolName(named.Name)
	switch {
	case named.Service == nil:
		return fmt.Errorf("%w: pool %q has no service", api.ErrConfig, named.Name)
	case err != nil:
		return fmt.Errorf("%w: pool %q: %w", api.ErrConfig, named.Name, err)
	case named.Service.Backend().Shared() != ps.backend:
		return fmt.Errorf("%w: pool %q has another backend than the others", api.ErrConfig, named.Name)
	case others[named.Name] != nil:
		return fmt.Errorf("%w: two pools are named %q", api.ErrConfig, named.Name)
	}
	return nil
}

// replace serves the configured pools next, and returns those that are gone.
func (ps *pools) replace(next map[string]*pool, accept func(coordinator.Pool) (*lookup.Service, error)) (gone []GonePool) {
	for _, p := range next {
		if p.account == nil {
			p.account = ps.open(p.service)
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for name, p := range ps.byName {
		if next[name] == p || p.described && next[name] == nil {
			continue
		}
		if p.described {
			ps.described--
		}
		delete(ps.byName, name)
		p.gone.Store(true)
		ps.gone = append(ps.gone, p)
		gone = append(gone, GonePool{name, p.service.Stat().Entries})
	}
	for name, p := range next {
		ps.byName[name] = p
	}
	ps.own, ps.accept = next[""], accept
	return gone
}

// closeGone ends the accounts of pools that are gone, and that no connection uses any more.
func (ps *pools) closeGone() {
	ps.mu.Lock()
	var unused []*pool
	used := ps.gone[:0]
	for _, p := range ps.gone {
		if p.connections == 0 {
			unused = append(unused, p)
		} else {
			used = append(used, p)
		}
	}
	clear(ps.gone[len(used):])
	ps.gone = used
	ps.mu.Unlock()
	for _, p := range unused {
		ps.close(p.account)
	}
	if len(unused) > 0 {
		runtime.GC() // their indexes are not in the memory of Go, whose growth would start it
	}
}

// isGone reports whether the pool is not served any more. Its connections are to be closed. nil is not gone.
func (p *pool) isGone() bool { return p != nil && p.gone.Load() }

// enterOwn returns the server's own pool, nil if there is none, and counts a connection of it.
func (ps *pools) enterOwn() *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.moveLocked(nil, ps.own)
	return ps.own
}

// ownPool returns the server's own pool, nil if there is none.
func (ps *pools) ownPool() *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.own
}
