package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// Merge returns what is in effect once next has been read by a server that runs by c: the values
// of next that can change while it runs, and otherwise those of c. changed are the paths of
// the values that are taken from next, left those that need a restart. A list is one value.
func (c *Config) Merge(next *Config) (merged *Config, changed, left []string) {
	merged = new(*c)
	merged.Log.Level, merged.DrainDelay, merged.DrainTimeout = next.Log.Level, next.DrainDelay, next.DrainTimeout
	merged.Limits = next.Limits
	merged.Limits.MaxAccount = c.Limits.MaxAccount
	if c.Backend.Name() != "memory" { // the memory for keys of a store is divided at the start
		merged.Limits.MaxMemory = c.Limits.MaxMemory
	}
	if !c.changesPoolOfRouter(next) {
		merged.Pool, merged.written, merged.Pools, merged.AcceptPools = next.Pool, next.written, next.Pools, next.AcceptPools
		merged.origins = next.origins // by which HasPool goes
	}
	merged.Listen = slices.Clone(c.Listen)
	found := 0
	for i := range merged.Listen {
		if j := next.FindListener(merged.Listen[i].Address); j >= 0 {
			merged.Listen[i] = next.Listen[j]
			found++
		}
	}
	if c.Router.Listen != nil && next.HasRouterListener(c.Router.Listen.Address) {
		merged.Router.Listen = next.Router.Listen
	}
	changed, left = c.differing(merged), merged.differing(next)
	if found == len(c.Listen) && found == len(next.Listen) { // in another order, perhaps
		left = slices.DeleteFunc(left, func(path string) bool { return path == "listen" })
	}
	return merged, changed, left
}

// HasPoolsOf reports whether other says the same of pools.
func (c *Config) HasPoolsOf(other *Config) bool {
	return c.HasPool() == other.HasPool() && c.Accepts() == other.Accepts() &&
		reflect.DeepEqual(c.Pool, other.Pool) && reflect.DeepEqual(c.Pools, other.Pools)
}

// changesPoolOfRouter reports whether a pool is another one in next, or gone, that a model of the router has: its service
// is that of the start.
func (c *Config) changesPoolOfRouter(next *Config) bool {
	return slices.ContainsFunc(c.Router.Models, func(m RouterModel) bool {
		switch m.Pool {
		case NoPool:
			return false
		case "":
			return !next.ServesPool() || !reflect.DeepEqual(c.Pool, next.Pool)
		}
		pool, ok := next.Pools[m.Pool]
		return !ok || !reflect.DeepEqual(c.Pools[m.Pool], pool)
	})
}

// differing returns the paths of the values in which other differs, in order.
func (c *Config) differing(other *Config) (paths []string) {
	others := maps.Collect(fieldsBelow(fieldsOf(other), ""))
	for path, value := range fieldsBelow(fieldsOf(c), "") {
		if !isSection(value.Type()) && path != "pools" && !reflect.DeepEqual(value.Interface(), others[path].Interface()) {
			paths = append(paths, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mergedKeys(c.Pools, other.Pools))) {
		pool, ok := c.Pools[name]
		if another, found := other.Pools[name]; ok != found || !reflect.DeepEqual(pool, another) {
			paths = append(paths, join("pools", name))
		}
	}
	if c.Backend.chosen != other.Backend.chosen {
		paths = append(paths, "backend")
	}
	return paths
}

// mergedKeys returns the pools that are in one of two maps.
func mergedKeys(a, b map[string]coordinator.Pool) map[string]coordinator.Pool {
	all := map[string]coordinator.Pool{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// HasRouterListener reports whether router.listen has an address as it is written, with or without tcp://.
func (c *Config) HasRouterListener(address string) bool {
	return c.Router.Listen != nil && sameAddress(c.Router.Listen.Address, address)
}

// sameAddress reports whether two addresses are the same as they are written, with or without tcp://.
func sameAddress(a, b string) bool {
	networkA, restA, errA := api.SplitAddress(a)
	networkB, restB, errB := api.SplitAddress(b)
	return errA == nil && errB == nil && networkA == networkB && restA == restB
}

// FindListener returns the position of the entry with an address as it is written, with or without
// tcp://, or -1.
func (c *Config) FindListener(address string) int {
	return slices.IndexFunc(c.Listen, func(l Listener) bool { return sameAddress(l.Address, address) })
}
