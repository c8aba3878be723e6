package config

import (
	"maps"
	"math"
	"slices"

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
	for _, check := range []func() error{c.checkListen, c.checkMetrics, c.checkNumbers, c.checkBackend, c.checkTimeouts, c.checkPool, c.checkFleet} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkNumbers() error {
	l := &c.Limits
	if l.MaxMemory > 0 && l.MaxMemory < LeastMemory {
		return c.wrong("limits.max_memory", "%d is too small, must be at least %d (16MiB), or 0 for the default", int64(l.MaxMemory), int64(LeastMemory))
	}
	return c.checkRanges([]span{
		{"loops", int64(c.Loops), 0, maxLoops},
		{"max_pools", int64(c.MaxPools), 1, maxPools},
		{"limits.max_message", int64(l.MaxMessage), 1, maxInt},
		{"limits.max_frames", int64(l.MaxFrames), 1, maxInt},
		{"limits.max_hashes", int64(l.MaxHashes), 1, maxInt},
		{"limits.max_connections", int64(l.MaxConnections), 1, maxInt},
		{"limits.max_in_flight", int64(l.MaxInFlight), 1, maxInt},
		{"limits.max_unsent", int64(l.MaxUnsent), 1, maxInt},
		{"limits.max_memory", int64(l.MaxMemory), 0, maxInt},
	})
}

// LeastMemory is the least limits.max_memory, in bytes: some large requests.
const LeastMemory = 16 << 20

// span is a number and its bounds.
type span struct {
	path               string
	value, least, most int64
}

func (c *Config) checkRanges(numbers []span) error {
	for _, n := range numbers {
		switch {
		case n.value < n.least:
			return c.wrong(n.path, "%d is too small, must be at least %d", n.value, n.least)
		case n.value > n.most:
			return c.wrong(n.path, "%d is too large, must be at most %d", n.value, n.most)
		}
	}
	return nil
}

// checkTimeouts refuses 0 where it would mean waiting for ever. It turns idling
// off, and draining.
func (c *Config) checkTimeouts() error {
	for _, t := range []struct {
		path  string
		value Duration
	}{
		{"limits.handshake_timeout", c.Limits.HandshakeTimeout},
		{"limits.message_timeout", c.Limits.MessageTimeout},
		{"limits.write_timeout", c.Limits.WriteTimeout},
	} {
		if t.value == 0 {
			return c.wrong(t.path, "0 would let a client hold a connection for ever; must be more")
		}
	}
	return nil
}

// checkRelease refuses an empty release, and a revision beside a release of vLLM that has
// another. The coordinator cannot tell the default revision from one that was written.
func (c *Config) checkRelease(path string, pool coordinator.Pool) error {
	if pool.VLLM == "" {
		if _, written := c.origins[path+".vllm"]; written {
			return c.wrong(path+".vllm", "is empty; give the engine's release, for example %q, or leave it out for revision %s", coordinator.NewestRelease(), pool.Revision)
		}
		return nil
	}
	if _, written := c.origins[path+".revision"]; !written {
		return nil
	}
	revision := pool.Revision
	pool.Revision = 0
	if rules, err := coordinator.New(pool); err == nil && rules.Pool().Revision != revision {
		return c.wrong(path+".revision", "vllm %s already chooses the rules: remove revision", pool.VLLM)
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
	if pool.Revision == coordinator.Revision20260604 {
		return pool, c.wrong(path+".revision", "2026-06-04 cannot be served: its engines speak another wire; use 2026-06-20")
	}
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
