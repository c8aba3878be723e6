package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// inEffect returns the values in effect by their paths. A list is one value; so is each of the pools. What has a default
// that follows other values has that default.
func (c *Config) inEffect() map[string]any {
	values := map[string]any{"backend": c.Backend.chosen, "pool": c.ServesPool()}
	for path, value := range fieldsBelow(fieldsOf(c), "") {
		ofAnother := below(path, "backend") && !below(path, "backend."+c.Backend.chosen)
		if !ofAnother && !isSection(value.Type()) {
			values[path] = value.Interface()
		}
	}
	delete(values, "pools")
	for name, pool := range c.Pools {
		values[join("pools", name)] = pool
	}
	values["accept_pools"] = c.Accepts()
	return values
}

// changes returns the paths of the values in which next differs from c, sorted. Of another backend that is its choice.
func (c *Config) changes(next *Config) []string {
	before, after := c.inEffect(), next.inEffect()
	var paths []string
	for path, value := range before {
		if other, ok := after[path]; !reflect.DeepEqual(value, other) && (ok || below(path, "pools")) {
			paths = append(paths, path)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok && below(path, "pools") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Merge returns what is in effect once next has been read by a server that runs by c: the values
// of next that can change while it runs, and otherwise those of c. changed are the paths of
// the values that are taken from next, left those that need a restart.
func (c *Config) Merge(next *Config) (merged *Config, changed, left []string) {
	merged = new(*c)
	merged.Log.Level, merged.DrainTimeout = next.Log.Level, next.DrainTimeout
	merged.Limits = next.Limits
	merged.Limits.MaxMemory = c.Limits.MaxMemory
	merged.Listen, merged.Pools = slices.Clone(c.Listen), maps.Clone(c.Pools)
	merged.AcceptPools = new(c.Accepts())
	if merged.origins = maps.Clone(c.origins); c.ServesPool() && !c.HasPool() {
		merged.origins["pool"] = origin{name: "default"} // it stays when others are added
	}
	for _, path := range c.changes(next) {
		name, isPool := strings.CutPrefix(path, "pools.")
		_, known := c.Pools[name]
		switch {
		case path == "listen":
			entries, all := merged.mergeListen(next)
			changed = append(changed, entries...)
			if !all {
				left = append(left, path)
			}
		case isPool && !known:
			if merged.Pools == nil {
				merged.Pools = map[string]coordinator.Pool{}
			}
			merged.Pools[name] = next.Pools[name]
			changed = append(changed, path)
		case path == routerListenPath && merged.mergeRouterListen(next):
			changed = append(changed, path)
		case path == "drain_timeout", path == "log.level", below(path, "limits") && path != "limits.max_memory":
			changed = append(changed, path)
		default:
			left = append(left, path)
		}
	}
	return merged, changed, left
}

// mergeListen replaces the entries of c by those of next with the same address, and returns the
// paths of those that differ. all is false if there is an address that only one of the two has.
func (c *Config) mergeListen(next *Config) (changed []string, all bool) {
	found := 0
	for i := range c.Listen {
		if j := next.FindListener(c.Listen[i].Address); j >= 0 {
			found++
			if !reflect.DeepEqual(c.Listen[i], next.Listen[j]) {
				c.Listen[i] = next.Listen[j]
				changed = append(changed, listenPath(j))
			}
		}
	}
	return changed, found == len(c.Listen) && found == len(next.Listen)
}

// mergeRouterListen replaces the entry of router.listen by that of next if it has the same address.
func (c *Config) mergeRouterListen(next *Config) bool {
	if c.Router.Listen == nil || !next.HasRouterListener(c.Router.Listen.Address) {
		return false
	}
	c.Router.Listen = next.Router.Listen
	return true
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
