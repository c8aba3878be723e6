package coordinator

import (
	"fmt"
	"slices"
)

// Warnings returns what is doubtful about the pool though it can be served, a sentence each.
func (c *Coordinator) Warnings() (warnings []string) {
	p := &c.pool
	if c.lacksHitAlignment() {
		warnings = append(warnings, fmt.Sprintf("cache_hit_alignment_tokens is not set: engines with these groups have %d, unless prefix caching is off; hits inside a block are missed", p.HashBlockSize))
	}
	if heads, ranks := p.NumKVHead, p.TPSize; heads%ranks != 0 && ranks%heads != 0 {
		warnings = append(warnings, fmt.Sprintf("num_kv_head is %d and tp_size %d: neither divides the other, so no engine of vLLM has both; lookups would ask for other keys than the engine's", heads, ranks))
	}
	return warnings
}

// lacksHitAlignment reports whether CacheHitAlignmentTokens is not set though an engine of
// these groups has hits inside blocks. (Reference: resolve_cache_hit_alignment_tokens.)
func (c *Coordinator) lacksHitAlignment() bool {
	if c.rules.fineGrained != fineGrainedConfigured || c.pool.CacheHitAlignmentTokens != 0 || c.pool.CapacityOnly || len(c.pool.Groups) < 2 {
		return false
	}
	least := c.pool.HashBlockSize + 1 // block size of the mamba group
	if c.pool.DCPSize > 1 {
		least--
	}
	partial := func(g groupState) bool {
		return g.Kind == Mamba && g.MambaCacheMode == "align" && g.BlockSize >= least
	}
	forbids := func(g groupState) bool {
		return !g.Kind.IsFull() && g.Kind != Mamba && g.BlockSize != c.pool.HashBlockSize
	}
	return slices.ContainsFunc(c.groups, partial) && !slices.ContainsFunc(c.groups, forbids)
}
