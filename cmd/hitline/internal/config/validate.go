package config

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// maxLoops is where the network library stops numbering event loops.
const maxLoops = 256

// validate checks what c says as a whole and fills in the pool's defaults.
func (c *Config) validate() error {
	for _, check := range []func() error{c.checkListen, c.checkMetrics, c.checkNumbers, c.checkBackend, c.checkTimeouts, c.checkPool} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkListen checks every address, and that there is one.
func (c *Config) checkListen() error {
	if len(c.Listen) == 0 {
		return c.wrong("listen", "no address; give one such as tcp://127.0.0.1:7557")
	}
	seen := map[address]string{}
	for i, text := range c.Listen {
		path := fmt.Sprintf("listen[%d]", i)
		a, err := parseAddress(text)
		if err != nil {
			return c.wrong(path, "%v", err)
		}
		if before, twice := seen[a]; twice {
			return c.wrong(path, "%q is the same address as %q before it; remove one", text, before)
		}
		seen[a] = text
	}
	return nil
}

func (c *Config) checkNumbers() error {
	l := &c.Limits
	return c.checkRanges([]span{
		{"loops", int64(c.Loops), 0, maxLoops},
		{"limits.max_message", int64(l.MaxMessage), 1, maxInt},
		{"limits.max_frames", int64(l.MaxFrames), 1, maxInt},
		{"limits.max_hashes", int64(l.MaxHashes), 1, maxInt},
		{"limits.max_connections", int64(l.MaxConnections), 1, maxInt},
		{"limits.max_in_flight", int64(l.MaxInFlight), 1, maxInt},
		{"limits.max_unsent", int64(l.MaxUnsent), 1, maxInt},
	})
}

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
	} {
		if t.value == 0 {
			return c.wrong(t.path, "0 would let a client hold a connection for ever; must be more")
		}
	}
	return nil
}

// checkRelease refuses an empty release, and a revision beside a release of vLLM that has
// another. The coordinator cannot tell the default revision from one that was written.
func (c *Config) checkRelease() error {
	if c.Pool.VLLM == "" {
		if _, written := c.origins["pool.vllm"]; written {
			return c.wrong("pool.vllm", "is empty; give the engine's release, for example %q, or leave it out for revision %s", coordinator.NewestRelease(), c.Pool.Revision)
		}
		return nil
	}
	if _, written := c.origins["pool.revision"]; !written {
		return nil
	}
	pool := c.Pool
	pool.Revision = 0
	if rules, err := coordinator.New(pool); err == nil && rules.Pool().Revision != c.Pool.Revision {
		return c.wrong("pool.revision", "vllm %s already chooses the rules: remove revision", c.Pool.VLLM)
	}
	return nil
}

// checkPool refuses the pools that cannot be served, and those that the
// coordinator refuses.
func (c *Config) checkPool() error {
	if c.Pool.Revision == coordinator.Revision20260604 {
		return c.wrong("pool.revision", "2026-06-04 cannot be served: its engines speak another wire; use 2026-06-20")
	}
	if err := c.checkRelease(); err != nil {
		return err
	}
	rules, err := coordinator.New(c.Pool)
	if err != nil {
		return c.Blame("pool", err)
	}
	c.Pool = rules.Pool()
	return nil
}
