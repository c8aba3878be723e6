package coordinator

import (
	"fmt"
	"slices"
)

// Warnings returns what is doubtful about the pool though it can be served, a sentence each.
func (c *Coordinator) Warnings() (warnings []string) {
	p := &c.pool
	if p.IsUnknownRelease() {
		warnings = append(warnings, fmt.Sprintf("vllm %s is a release that is not known: lookups are answered by the rules of %s, and may be wrong", p.VLLM, NewestRelease()))
	}
	if c.lacksHitAlignment() {
		warnings = append(warnings, fmt.Sprintf("cache_hit_alignment_tokens is not set: engines with these groups have %d, unless prefix caching is off; hits inside a block are missed", p.HashBlockSize))
	}
	return append(warnings, c.withoutEffect()...)
}

// withoutEffect names the sizes and ranks that are set and do not count in the pool's release.
func (c *Coordinator) withoutEffect() (warnings []string) {
	p, ofWorker := &c.pool, c.rules.ranks == ranksOfWorker
	for _, field := range []struct {
		name      string
		isSet     bool
		isCounted bool
	}{
		{"pcp_size", p.PCPSize > 1, !ofWorker},
		{"dcp_size", p.DCPSize > 1, !ofWorker},
		{"pcp_rank", p.PCPRank > 0, ofWorker},
		{"dcp_rank", p.DCPRank > 0, ofWorker},
	} {
		switch {
		case !field.isSet || field.isCounted:
		case ofWorker:
			warnings = append(warnings, fmt.Sprintf("%s has no effect in vLLM %s: up to 0.24.0 pcp_rank and dcp_rank of the worker that looks up count in its place; remove it, or is the engine of a later release than vllm says?", field.name, p.releaseName()))
		default:
			warnings = append(warnings, fmt.Sprintf("%s has no effect in vLLM %s: from 0.25.0 on pcp_size and dcp_size count; remove it", field.name, p.releaseName()))
		}
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
