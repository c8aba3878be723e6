package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/server"
)

// maxInt bounds what ends up in an int, whatever its size.
const maxInt = math.MaxInt

// maxLoops is where the network library stops numbering event loops.
const maxLoops = 256

// maxPools is more than a server has engines.
const maxPools = 4096

// validate checks what c says as a whole and fills in the pool's defaults.
func (c *Config) validate() error {
	for _, check := range []func() error{c.checkListen, c.checkMetrics, c.checkNumbers, c.checkBackend, c.checkPool, c.checkRouter, c.checkHTTPHosts} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// MinMemory is the minimum of limits.max_memory, in bytes: one client has as much in flight as it may.
const MinMemory = 24 << 20

const (
	// minTimeout is the minimum of a time that may not be 0, which would mean to wait for ever, or not at all.
	minTimeout = Duration(time.Millisecond)
	// minInterval is the minimum interval of snapshots above 0: a folder is read and a file is synced each time.
	minInterval = Duration(time.Second)
	// maxConns bounds the connections to a store: more is a mistake.
	maxConns = 65536
)

// checkNumbers checks the numbers, sizes and times of all sections but fleet. What other packages bound
// themselves is not here.
func (c *Config) checkNumbers() error {
	l := &c.Limits
	bounds := []bound{
		within("loops", c.Loops, 0, maxLoops),
		within("max_pools", c.MaxPools, 1, maxPools),
		within("limits.max_message", l.MaxMessage, 1, maxInt),
		within("limits.max_frames", l.MaxFrames, 1, maxInt),
		within("limits.max_hashes", l.MaxHashes, 1, maxInt),
		within("limits.max_connections", l.MaxConnections, 1, maxInt),
		within("limits.max_in_flight", l.MaxInFlight, 1, maxInt),
		within("limits.max_unsent", l.MaxUnsent, 1, maxInt),
		within("limits.max_memory", l.MaxMemory, MinMemory, maxInt).or0(),
		within("limits.handshake_timeout", l.HandshakeTimeout, minTimeout, maxInt),
		within("limits.message_timeout", l.MessageTimeout, minTimeout, maxInt),
		within("limits.write_timeout", l.WriteTimeout, minTimeout, maxInt),
	}
	switch c.Backend.chosen {
	case "memory":
		bounds = append(bounds, within("backend.memory.snapshot.interval", c.Backend.Memory.Snapshot.Interval, minInterval, maxInt).or0())
	case "redis":
		bounds = append(bounds,
			within("backend.redis.pool_size", c.Backend.Redis.PoolSize, 1, maxConns),
			within("backend.redis.timeout", c.Backend.Redis.Timeout, minTimeout, maxInt))
	case "mooncake":
		bounds = append(bounds,
			within("backend.mooncake.conns", c.Backend.Mooncake.Conns, 1, maxConns),
			within("backend.mooncake.lease", c.Backend.Mooncake.Lease, minTimeout, maxInt).or0(),
			within("backend.mooncake.remember", max(0, c.Backend.Mooncake.Remember), Remember(minTimeout), maxInt).or0(),
			within("backend.mooncake.timeout", c.Backend.Mooncake.Timeout, minTimeout, maxInt))
	}
	return c.checkBounds(bounds...)
}

// bound is a number with its bounds.
type bound struct {
	path            string
	value, min, max int64
	zero            bool                 // 0 is allowed, too
	format          func(n int64) string // as the configuration has it
}

// within returns the bound of a number, a size or a time.
func within[T ~int | ~int64](path string, value, min, max T) bound {
	return bound{path: path, value: int64(value), min: int64(min), max: int64(max), format: func(n int64) string { return fmt.Sprint(T(n)) }}
}

// or0 allows 0 below the minimum.
func (b bound) or0() bound { b.zero = true; return b }

// checkBounds refuses the first number that is out of its bounds.
func (c *Config) checkBounds(bounds ...bound) error {
	for _, b := range bounds {
		switch {
		case b.zero && b.value == 0:
		case b.value < b.min && b.zero:
			return c.wrong(b.path, "%s is too small, must be at least %s, or 0", b.format(b.value), b.format(b.min))
		case b.value < b.min:
			return c.wrong(b.path, "%s is too small, must be at least %s", b.format(b.value), b.format(b.min))
		case b.value > b.max:
			return c.wrong(b.path, "%s is too large, must be at most %s", b.format(b.value), b.format(b.max))
		}
	}
	return nil
}

// checkRelease refuses an empty release. The coordinator cannot tell it from one that is left out.
func (c *Config) checkRelease(path string, pool coordinator.Pool) error {
	if _, written := c.origins[path+".vllm"]; written && pool.VLLM == "" {
		return c.wrong(path+".vllm", "is empty; give the engine's release, for example %q, or leave it out for lookups as in %s", coordinator.NewestRelease(), pool.FittingReleases())
	}
	return nil
}

// checkPool refuses the pools that cannot be served, and those that the
// coordinator refuses.
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

// validPool returns the pool at path with its defaults.
func (c *Config) validPool(path string, pool coordinator.Pool) (coordinator.Pool, error) {
	if err := c.checkRelease(path, pool); err != nil {
		return pool, err
	}
	rules, err := coordinator.New(pool)
	if err != nil {
		return pool, c.Blame(path, err)
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

// Accepts reports whether clients may describe further pools.
func (c *Config) Accepts() bool {
	if c.AcceptPools != nil {
		return *c.AcceptPools
	}
	return c.Backend.Name() != "memory" && !c.HasPool() && len(c.Pools) == 0
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

// ServesPool reports whether the server has a pool of its own: unless there are others and it
// is not configured.
func (c *Config) ServesPool() bool { return c.HasPool() || len(c.Pools) == 0 && !c.Accepts() }
