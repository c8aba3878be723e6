package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hitline/hitline/backend/redis"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/server"
)

// checkPool refuses the pools that cannot be served, and fills in the defaults of the server's own.
func (c *Config) checkPool() error {
	c.written = c.Pool
	pool, err := c.validPool("pool", c.Pool)
	if err != nil {
		return err
	}
	c.Pool = pool
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		path := join("pools", name)
		if err := server.CheckPoolName(name); err != nil {
			return c.wrong(path, "%v", err)
		}
		if _, err := c.validPool(path, c.Pools[name]); err != nil {
			return err
		}
	}
	return nil
}

// validPool returns the pool at path with its defaults. An empty release and a size of 0 are refused: the coordinator
// cannot tell them from ones that are left out. The scheduler's block size may be 0: it follows from others.
func (c *Config) validPool(path string, pool coordinator.Pool) (coordinator.Pool, error) {
	if c.isSet(path+".vllm") && pool.VLLM == "" {
		return pool, c.wrong(path+".vllm", "is empty; give the engine's release, for example %q, or leave it out for lookups as in %s",
			coordinator.NewestRelease(), pool.FittingReleases())
	}
	for name, field := range fieldsBelow(fieldsOf(&pool), "") {
		isSize := strings.HasSuffix(name, "_size") && name != "scheduler_block_size"
		if isSize && field.Kind() == reflect.Int && field.IsZero() && c.isSet(join(path, name)) {
			return pool, c.wrong(join(path, name), "is 0; give 1 or more, or leave it out for its default")
		}
	}
	rules, err := coordinator.New(pool)
	if err != nil {
		return pool, c.WithOrigin(path, err)
	}
	if c.Backend.Name() == "redis" {
		if err := redis.CheckLayout(rules.Pool()); err != nil {
			return pool, c.WithOrigin(path, err)
		}
	}
	return rules.Pool(), nil
}

// HasPool reports whether pool is configured.
func (c *Config) HasPool() bool {
	for path := range c.origins {
		if below(path, "pool") {
			return true
		}
	}
	return false
}

// WrittenPool returns pool as it was configured, before its defaults were filled in.
func (c *Config) WrittenPool() coordinator.Pool { return c.written }

// UsePool makes pool that of the configuration. at says where it comes from.
func (c *Config) UsePool(at string, pool coordinator.Pool) error {
	c.origins.set("pool", origin{name: at})
	c.Pool = pool
	return c.checkPool()
}

// ServesPool reports whether the server has a pool of its own: unless there are others and it
// is not configured.
func (c *Config) ServesPool() bool { return c.HasPool() || len(c.Pools) == 0 && !c.Accepts() }

// Accepts reports whether clients may describe further pools.
func (c *Config) Accepts() bool {
	if c.AcceptPools != nil {
		return *c.AcceptPools
	}
	return c.Backend.Name() != "memory" && !c.HasPool() && len(c.Pools) == 0
}

// knowsPool reports whether the server may have a pool of this name, "" for its own.
func (c *Config) knowsPool(name string) bool {
	_, ok := c.Pools[name]
	return ok || c.Accepts() || name == "" && c.ServesPool()
}

// MemoryShares returns how many pools share the memory of the memory backend: those that are
// configured and those that clients may describe.
func (c *Config) MemoryShares() int64 {
	n := len(c.Pools)
	if c.ServesPool() {
		n++
	}
	if c.Accepts() {
		n += c.MaxPools
	}
	return int64(max(n, 1))
}
