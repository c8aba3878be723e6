package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/hitline/hitline/lookup/api"
)

// Merge returns what is in effect once next has been read by a server that runs by c: the values
// of next that can change while it runs, and otherwise those of c. changed are the paths of
// the values that are taken from next, left those that need a restart. A list is one value, and so are the pools.
func (c *Config) Merge(next *Config) (merged *Config, changed, left []string) {
	merged = new(*c)
	merged.Log.Level, merged.DrainDelay, merged.DrainTimeout = next.Log.Level, next.DrainDelay, next.DrainTimeout
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

// differing returns the paths of the values in which other differs, in order.
func (c *Config) differing(other *Config) (paths []string) {
	others := maps.Collect(fieldsBelow(fieldsOf(other), ""))
	for path, value := range fieldsBelow(fieldsOf(c), "") {
		if !isSection(value.Type()) && !reflect.DeepEqual(value.Interface(), others[path].Interface()) {
			paths = append(paths, path)
		}
	}
	if c.Backend.chosen != other.Backend.chosen {
		paths = append(paths, "backend")
	}
	return paths
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
