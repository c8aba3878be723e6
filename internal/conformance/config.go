package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// ConfigCase is a case of config.json: what an engine makes of its configuration.
type ConfigCase struct {
	ID string `json:"id"`
	// Groups have block sizes before the factor of decode-context parallelism.
	Groups []map[string]any `json:"groups"`
	VLLM   struct {
		Model         string      `json:"model"`
		UseMLA        bool        `json:"use_mla"`
		NumKVHeads    int         `json:"num_kv_heads"`
		TP            int         `json:"tp"`
		PP            int         `json:"pp"`
		PCP           int         `json:"pcp"`
		DCP           int         `json:"dcp"`
		KVCacheLayout string      `json:"kv_cache_layout"`
		ExtraConfig   extraConfig `json:"extra_config"`
	} `json:"vllm"`
	Expect          *ConfigExpect            `json:"expect"`
	ExpectByRelease map[string]*ConfigExpect `json:"expect_by_release"`
}

// ConfigExpect is what the reference makes of a case. An engine with an Error does not
// start. One with CapacityOnly has no facts.
type ConfigExpect struct {
	SchedulerBlockSize      int    `json:"scheduler_block_size"`
	HashBlockSize           int    `json:"hash_block_size"`
	CacheHitAlignmentTokens *int   `json:"cache_hit_alignment_tokens"` // from 0.32.0 on
	UseEagle                bool   `json:"use_eagle"`
	RetentionInterval       *int   `json:"retention_interval"`
	StoreBlockSizes         []int  `json:"store_block_sizes"`
	CapacityOnly            bool   `json:"capacity_only"`
	Error                   string `json:"error"`
	Stage                   string `json:"stage"`

	StoreGroups          []int      `json:"store_groups"`
	FineGrained          bool       `json:"fine_grained"`
	AttentionGroups      [][]int    `json:"attention_groups"`
	EagleGroups          []int      `json:"eagle_groups"`
	TPReplicationFactors []int      `json:"tp_replication_factors"` // from 0.27.1 on
	PrefixCounts         []int      `json:"prefix_counts"`
	KeyPrefixes          [][]string `json:"key_prefixes"` // if they are few
	PrefixesSHA256       string     `json:"prefixes_sha256"`
}

// ConfigFacts are what an implementation makes of a case. Numbers are those of store groups,
// but in StoreGroups. The last two are not compared if they are nil.
type ConfigFacts struct {
	StoreGroups          []int // positions in the case's groups
	FineGrained          bool
	AttentionGroups      [][]int    // in the order of the search
	KeyPrefixes          [][]string // without the last @
	EagleGroups          []int
	TPReplicationFactors []int
}

// Releases returns the releases that the case names, oldest first; nil if all that its folder
// stands for have the same expectation.
func (c *ConfigCase) Releases() []string {
	return slices.Sorted(maps.Keys(c.ExpectByRelease))
}

// Expected returns what a release makes of the case. A release that the case does not name
// has the expectation of the first that it names.
func (c *ConfigCase) Expected(release string) *ConfigExpect {
	if c.Expect != nil {
		return c.Expect
	}
	if want := c.ExpectByRelease[release]; want != nil {
		return want
	}
	return c.ExpectByRelease[c.Releases()[0]]
}

// PoolJSON returns a pool configuration with the sizes of want, and without the extra options
// of the connector if sharing is unset: releases without them refuse them.
func (c *ConfigCase) PoolJSON(want *ConfigExpect, sharing bool) ([]byte, error) {
	groups := make([]map[string]any, len(c.Groups))
	for g := range groups {
		groups[g] = maps.Clone(c.Groups[g])
	}
	for i, g := range want.StoreGroups {
		groups[g]["block_size"] = want.StoreBlockSizes[i]
	}
	fields := map[string]any{
		"model_name": c.VLLM.Model, "hash_block_size": want.HashBlockSize, "scheduler_block_size": want.SchedulerBlockSize,
		"use_eagle": want.UseEagle, "retention_interval": want.RetentionInterval, "capacity_only": want.CapacityOnly,
		"tp_size": c.VLLM.TP, "pp_size": c.VLLM.PP, "pcp_size": c.VLLM.PCP, "dcp_size": c.VLLM.DCP,
		"num_kv_head": c.VLLM.NumKVHeads, "cache_prefix": c.VLLM.ExtraConfig.CachePrefix, "groups": groups,
	}
	if want.CacheHitAlignmentTokens != nil {
		fields["cache_hit_alignment_tokens"] = *want.CacheHitAlignmentTokens
	}
	if sharing {
		fields["kv_cache_layout"] = c.VLLM.KVCacheLayout
		c.VLLM.ExtraConfig.addTo(fields)
	}
	return json.Marshal(fields)
}

// Judge compares facts with the recorded ones.
func (want *ConfigExpect) Judge(got *ConfigFacts) Verdict {
	var all []string
	counts := []int{}
	for _, prefixes := range got.KeyPrefixes {
		all = append(all, prefixes...)
		counts = append(counts, len(prefixes))
	}
	digest := sha256.Sum256([]byte(strings.Join(all, "\n")))
	equalLists := func(a, b [][]int) bool { return slices.EqualFunc(a, b, slices.Equal) }
	switch {
	case !slices.Equal(got.StoreGroups, want.StoreGroups):
		return Differs("store groups %v, want %v", got.StoreGroups, want.StoreGroups)
	case got.FineGrained != want.FineGrained:
		return Differs("fine-grained %v, want %v", got.FineGrained, want.FineGrained)
	case !equalLists(got.AttentionGroups, want.AttentionGroups):
		return Differs("attention groups %v, want %v", got.AttentionGroups, want.AttentionGroups)
	case got.EagleGroups != nil && !slices.Equal(got.EagleGroups, want.EagleGroups):
		return Differs("eagle groups %v, want %v", got.EagleGroups, want.EagleGroups)
	case got.TPReplicationFactors != nil && !slices.Equal(got.TPReplicationFactors, want.TPReplicationFactors):
		return Differs("replication factors %v, want %v", got.TPReplicationFactors, want.TPReplicationFactors)
	case want.KeyPrefixes != nil && !slices.EqualFunc(got.KeyPrefixes, want.KeyPrefixes, slices.Equal):
		return Differs("prefixes %q, want %q", got.KeyPrefixes, want.KeyPrefixes)
	case !slices.Equal(counts, want.PrefixCounts) || hex.EncodeToString(digest[:]) != want.PrefixesSHA256:
		return Differs("%d prefixes of groups, begun by %q, want other %d", counts, all[:min(3, len(all))], want.PrefixCounts)
	}
	return Verdict{}
}
