package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Difference is a field in which a described pool differs from a configured one. The values
// are those of the field in the pool's JSON, null if it has none.
type Difference struct {
	Field      string          `json:"field"` // its path in the pool, such as "groups[1].kind"
	Configured json.RawMessage `json:"configured"`
	Described  json.RawMessage `json:"described"`
}

// String returns a phrase: tp_size is 2, described as 4. A field without a value is none.
func (d Difference) String() string {
	phrase := func(value json.RawMessage) string {
		if string(value) == "null" {
			return "none"
		}
		return string(value)
	}
	return fmt.Sprintf("%s is %s, described as %s", d.Field, phrase(d.Configured), phrase(d.Described))
}

// newDifference returns a difference of two values in JSON, "" if a field has none.
func newDifference(field, configured, described string) Difference {
	return Difference{field, json.RawMessage(cmp.Or(configured, "null")), json.RawMessage(cmp.Or(described, "null"))}
}

// Compare returns the fields in which an engine's description of its pool differs from the
// pool of c. configured is the pool of c before New filled in its defaults. Differences are
// the fields that are set there and have another value, and those left out whose defaults give
// other answers or keys. The release counts by its rules, and what has no effect on lookups
// does not count: RetentionInterval, and Variant where it makes the same groups equal.
func (c *Coordinator) Compare(configured Pool, described *Coordinator) []Difference {
	want, got, equal := c.pool, described.pool, equalAnswers(c, described)
	for _, p := range []*Pool{&want, &got} { // New leaves this default out
		p.KVCacheLayout = cmp.Or(p.KVCacheLayout, defaultKVCacheLayout)
	}
	var differences []Difference
	compare := func(name, path, set, want, got string) {
		if want != got && matters(name, set, want, equal) {
			differences = append(differences, newDifference(path, want, got))
		}
	}
	for _, f := range poolFields {
		if f.name != "model_name" || want.KeyModel() != got.KeyModel() {
			compare(f.name, f.name, f.in(&configured), f.in(&want), f.in(&got))
		}
	}
	for g := range max(len(want.Groups), len(got.Groups)) {
		for _, f := range groupFields {
			compare(f.name, groupPath(g)+"."+f.name, f.in(groupAt(&configured, g)), f.in(groupAt(&want, g)), f.in(groupAt(&got, g)))
		}
	}
	slices.SortFunc(differences, func(a, b Difference) int { return cmp.Compare(a.Field, b.Field) })
	switch {
	case !sameLookups(c.pool.release(), described.pool.release()):
		differences = append(differences, newDifference("vllm", text(c.pool.releaseName()), text(described.pool.releaseName())))
	case !equal && len(differences) == 0:
		differences = append(differences, newDifference("keys", c.firstKey(), described.firstKey()))
	}
	return differences
}

// field is a field of a pool or of a group that Compare compares. get returns its value as in
// JSON, "" if it is not set.
type field[T any] struct {
	name string
	get  func(of *T) string
}

// poolFields are those of a pool outside its groups. Not compared are vllm and allow_unknown_vllm,
// since the release counts by its rules, and retention_interval, which has no effect on lookups.
var poolFields = []field[Pool]{
	{"model_name", func(p *Pool) string { return text(p.ModelName) }},
	{"cache_prefix", func(p *Pool) string { return text(p.CachePrefix) }},
	{"layout", func(p *Pool) string { return text(p.Layout) }},
	{"hash_block_size", func(p *Pool) string { return number(p.HashBlockSize) }},
	{"scheduler_block_size", func(p *Pool) string { return number(p.SchedulerBlockSize) }},
	{"use_eagle", func(p *Pool) string { return flag(p.UseEagle) }},
	{"tp_size", func(p *Pool) string { return number(p.TPSize) }},
	{"pp_size", func(p *Pool) string { return number(p.PPSize) }},
	{"pcp_size", func(p *Pool) string { return number(p.PCPSize) }},
	{"dcp_size", func(p *Pool) string { return number(p.DCPSize) }},
	{"pcp_rank", func(p *Pool) string { return number(p.PCPRank) }},
	{"dcp_rank", func(p *Pool) string { return number(p.DCPRank) }},
	{"num_kv_head", func(p *Pool) string { return number(p.NumKVHead) }},
	{"cache_hit_alignment_tokens", func(p *Pool) string { return number(p.CacheHitAlignmentTokens) }},
	{"hash_len", func(p *Pool) string { return number(p.HashLen) }},
	{"capacity_only", func(p *Pool) string { return flag(p.CapacityOnly) }},
	{"store_tp_size", func(p *Pool) string { return pointed(p.StoreTPSize) }},
	{"enable_store_tp_lcm", func(p *Pool) string { return flag(p.EnableStoreTPLCM) }},
	{"prefill_tp_sizes", func(p *Pool) string { return numbers(p.PrefillTPSizes) }},
	{"enable_cross_layers_blocks", func(p *Pool) string { return flag(p.EnableCrossLayersBlocks) }},
	{"kv_cache_layout", func(p *Pool) string { return text(p.KVCacheLayout) }},
}

// groupFields are those of a group.
var groupFields = []field[Group]{
	{"kind", func(g *Group) string { return text(g.Kind.String()) }},
	{"block_size", func(g *Group) string { return number(g.BlockSize) }},
	{"sliding_window", func(g *Group) string { return number(g.SlidingWindow) }},
	{"attention_chunk_size", func(g *Group) string { return number(g.AttentionChunkSize) }},
	{"mamba_cache_mode", func(g *Group) string { return text(g.MambaCacheMode) }},
	{"variant", func(g *Group) string { return number(g.Variant) }},
	{"uniform", func(g *Group) string { return flag(g.Uniform) }},
	{"is_eagle_group", func(g *Group) string { return flag(g.IsEagleGroup) }},
	{"extra_retained_tokens", func(g *Group) string { return number(g.ExtraRetainedTokens) }},
	{"rswa_window", func(g *Group) string { return number(g.RSWAWindow) }},
	{"bounded_replay", func(g *Group) string { return flag(g.BoundedReplay) }},
	{"enable_kv_transfer", func(g *Group) string { return pointed(g.EnableKVTransfer) }},
}

// groupAt returns group g of p, nil if there is none.
func groupAt(p *Pool, g int) *Group {
	if g >= len(p.Groups) {
		return nil
	}
	return &p.Groups[g]
}

// in returns the value of the field in of, "" if that is nil.
func (f field[T]) in(of *T) string {
	if of == nil {
		return ""
	}
	return f.get(of)
}

func text(s string) string {
	if s == "" {
		return ""
	}
	quoted, _ := json.Marshal(s) // a text has no errors
	return string(quoted)
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func numbers(list []int) string {
	if len(list) == 0 {
		return ""
	}
	return strings.ReplaceAll(fmt.Sprint(list), " ", ",")
}

func flag(set bool) string {
	if !set {
		return ""
	}
	return "true"
}

// pointed returns the value of a field that is not set if it is nil.
func pointed[T any](value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(*value)
}

// firstKey returns the prefix of the first key that a lookup asks for, as in JSON.
func (c *Coordinator) firstKey() string { return text(c.groups[0].prefixes[0]) }

// matters reports whether a field that differs is a difference of the pools. configured and want
// are its values without and with the defaults of New. equal says that both pools
// give the same answers.
func matters(name, configured, want string, equal bool) bool {
	switch name {
	case "hash_len":
		return want != "" && !equal // unknown if it was not configured
	case "variant":
		return !equal
	}
	return configured != "" || !equal
}

// equalAnswers reports whether the lookups of two pools ask for the same keys and have the
// same answers, whatever is stored.
func equalAnswers(a, b *Coordinator) bool {
	if !sameLookups(a.pool.release(), b.pool.release()) || a.align != b.align || a.fineGrained != b.fineGrained ||
		a.pool.HashBlockSize != b.pool.HashBlockSize || a.pool.CapacityOnly != b.pool.CapacityOnly || len(a.groups) != len(b.groups) {
		return false
	}
	if a.pool.HashLen != 0 && b.pool.HashLen != 0 && a.pool.HashLen != b.pool.HashLen {
		return false
	}
	for g := range a.groups {
		x, y := &a.groups[g], &b.groups[g]
		if x.Kind != y.Kind || x.BlockSize != y.BlockSize || x.poolGroup != y.poolGroup || x.attention != y.attention ||
			x.eagle != y.eagle || x.keyMask != y.keyMask || !slices.Equal(x.prefixes, y.prefixes) {
			return false
		}
		if x.Kind.IsWindow() && x.SlidingWindow != y.SlidingWindow || x.Kind == ChunkedLocalAttention && x.AttentionChunkSize != y.AttentionChunkSize {
			return false
		}
	}
	return true
}
