package oracle

import (
	"encoding/json"
	"slices"
)

// releases lists releases of the reference, oldest first; those after the last one have its rules. "" is the commit of
// 2026-06-20. That of 2026-08-17 has the rules of 0.27.0 to 0.28.0.
var releases = []string{
	"", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0",
	"0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
}

// since reports whether the pool's release is the given one or newer.
func (p *Pool) since(release string) bool {
	return slices.Index(releases, p.Release) >= slices.Index(releases, release)
}

// Group is a group of layers. Its JSON names are those of the recorded answers. Sizes are in
// tokens, after the dcp factor.
type Group struct {
	Kind                string `json:"kind"`
	BlockSize           int    `json:"block_size"`
	SlidingWindow       int    `json:"sliding_window"`
	ExtraRetainedTokens int    `json:"extra_retained_tokens,omitempty"`
	AttentionChunkSize  int    `json:"attention_chunk_size"`
	RSWAWindow          int    `json:"rswa_window,omitempty"`
	MambaCacheMode      string `json:"mamba_cache_mode"`
	BoundedReplay       bool   `json:"bounded_replay,omitempty"`
	Variant             int    `json:"variant"`
	Uniform             bool   `json:"uniform,omitempty"`
	IsEagleGroup        bool   `json:"is_eagle_group"`
	EnableKVTransfer    *bool  `json:"enable_kv_transfer,omitempty"` // nil: true
}

// Pool is the configuration of the engine whose blocks are looked up. Sizes are in tokens.
// HashBlockSize and SchedulerBlockSize must be set, and at least one group must not be
// dropped. A number of ranks of 0 means 1.
type Pool struct {
	Release            string  `json:"vllm,omitempty"` // of vLLM, see releases
	HashBlockSize      int     `json:"hash_block_size"`
	SchedulerBlockSize int     `json:"scheduler_block_size"`
	UseEagle           bool    `json:"use_eagle"`
	RetentionInterval  *int    `json:"retention_interval"`
	ModelName          string  `json:"model_name,omitempty"`
	CachePrefix        string  `json:"cache_prefix,omitempty"`
	TPSize             int     `json:"tp_size"`
	PPSize             int     `json:"pp_size"`
	PCPSize            int     `json:"pcp_size"`
	DCPSize            int     `json:"dcp_size"`
	PCPRank            int     `json:"pcp_rank"`           // to 0.24.0
	DCPRank            int     `json:"dcp_rank,omitempty"` // to 0.24.0
	NumKVHead          int     `json:"num_kv_head"`        // 0: TPSize
	Groups             []Group `json:"groups"`

	// CapacityOnly means that lookups are off: every answer is 0.
	CapacityOnly bool `json:"capacity_only,omitempty"`
	// CacheHitAlignmentTokens less than SchedulerBlockSize is fine-grained mode from 0.32.0
	// on. 0 means none.
	CacheHitAlignmentTokens int `json:"cache_hit_alignment_tokens,omitempty"`

	ranks map[int][]Rank // by group, see SetRanks
}

// Rank is the rank of a worker that stores a block, as keys name it. TP is the number of the
// shard if keys are sharded.
type Rank struct{ TP, PP, PCP int }

// SetRanks sets the ranks that must store a block of each of the StoreGroups. Which ranks these are
// is no rule of this package: the recorded keys tell. Without SetRanks each group is on one rank.
func (p *Pool) SetRanks(ofGroup [][]Rank) {
	p.ranks = map[int][]Rank{}
	for number, g := range p.StoreGroups() {
		if number < len(ofGroup) { // a pool without lookups may have none
			p.ranks[g] = ofGroup[number]
		}
	}
}

// Ranks returns the ranks that must store a block of group g. A dropped group has none.
func (p *Pool) Ranks(g int) []Rank {
	switch {
	case p.dropped(g):
		return nil
	case p.ranks == nil:
		return []Rank{{}}
	}
	return p.ranks[g]
}

// PoolOf converts a value whose JSON has the names of Pool, such as a coordinator.Pool with
// its defaults.
func PoolOf(v any) (Pool, error) {
	var p Pool
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// full reports whether g is of the full attention family.
func (g Group) full() bool {
	return slices.Contains([]string{"full_attention", "mla_attention", "sink_full_attention", "rswa", "hidden_state"}, g.Kind)
}

// window reports whether g has a sliding window.
func (g Group) window() bool { return g.Kind == "sliding_window" || g.Kind == "sliding_window_mla" }

// scratch reports whether g is of a kind whose blocks are never cached.
func (g Group) scratch() bool {
	return slices.Contains([]string{"circular_buffer", "kpool_tail", "hisparse_hot", "hisparse_resident"}, g.Kind)
}

// untransferred reports whether group g is left out because its blocks are not transferred.
func (p *Pool) untransferred(g int) bool {
	enabled := p.Groups[g].EnableKVTransfer
	return p.since("0.29.0") && enabled != nil && !*enabled
}

// dropped reports whether group g takes no part in lookups.
func (p *Pool) dropped(g int) bool {
	group := p.Groups[g]
	return p.untransferred(g) || p.since("0.30.0") && (group.scratch() || group.BoundedReplay)
}

// StoreGroups returns the indexes in Groups of the groups that take part in lookups. Keys and
// boundaries number the groups by their places in this list.
func (p *Pool) StoreGroups() []int {
	var kept []int
	for g := range p.Groups {
		if !p.dropped(g) {
			kept = append(kept, g)
		}
	}
	return kept
}

// spec returns the part of g that is equal in all members of an attention group.
func (p *Pool) spec(g Group) Group {
	g.IsEagleGroup, g.Uniform, g.EnableKVTransfer = false, false, nil
	if g.MambaCacheMode == "none" {
		g.MambaCacheMode = ""
	}
	if p.since("0.33.0") && g.window() {
		g.SlidingWindow += g.ExtraRetainedTokens
		g.ExtraRetainedTokens = 0
	}
	return g
}

// attentionGroup is the groups of one spec.
type attentionGroup struct {
	Group         // the spec
	members []int // indexes of the groups
	eagle   bool  // one of them is an eagle group
}

// eagleFlags returns for each group whether it is an eagle group. Dropped groups are none.
func (p *Pool) eagleFlags() []bool {
	flags := make([]bool, len(p.Groups))
	for _, g := range p.StoreGroups() {
		flags[g] = p.Groups[g].IsEagleGroup
	}
	if p.UseEagle && !slices.Contains(flags, true) {
		for _, g := range p.StoreGroups() {
			flags[g] = true
		}
	}
	return flags
}

// attentionGroups returns the attention groups in order of first appearance, those of full
// attention first.
func (p *Pool) attentionGroups() []attentionGroup {
	flags := p.eagleFlags()
	var full, others []attentionGroup
next:
	for _, g := range p.StoreGroups() {
		spec := p.spec(p.Groups[g])
		list := &others
		if spec.full() {
			list = &full
		}
		for i := range *list {
			if a := &(*list)[i]; a.Group == spec {
				a.members = append(a.members, g)
				a.eagle = a.eagle || flags[g]
				continue next
			}
		}
		*list = append(*list, attentionGroup{Group: spec, members: []int{g}, eagle: flags[g]})
	}
	return append(full, others...)
}

// fineGrained reports whether hits may end inside a block.
func (p *Pool) fineGrained() bool {
	if p.since("0.32.0") {
		return p.CacheHitAlignmentTokens > 0 && p.CacheHitAlignmentTokens < p.SchedulerBlockSize
	}
	equalSizes := p.since("0.29.0") && p.DCPSize > 1
	return p.since("0.27.0") && slices.ContainsFunc(p.StoreGroups(), func(i int) bool {
		g := p.Groups[i]
		return g.Kind == "mamba" && g.MambaCacheMode == "align" && (g.BlockSize > p.HashBlockSize || equalSizes)
	})
}

// alignment returns A, in tokens.
func (p *Pool) alignment() int {
	if p.fineGrained() {
		return p.HashBlockSize
	}
	return p.SchedulerBlockSize
}

// stride returns k for blocks of that many tokens.
func (p *Pool) stride(block int) int { return block / p.HashBlockSize }

// floorDiv divides rounding towards minus infinity, as Python does.
func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}

// ceilDiv divides rounding towards plus infinity.
func ceilDiv(a, b int) int { return -floorDiv(-a, b) }

// Check returns the class of the error with which the reference refuses the pool.
func (p *Pool) Check() (class string) {
	kept := p.StoreGroups()
	switch {
	case p.CapacityOnly:
		return ""
	case len(kept) == 0:
		return valueError
	case p.SchedulerBlockSize%p.HashBlockSize != 0:
		return assertionError
	}
	for _, g := range kept {
		block := p.Groups[g].BlockSize
		if block%p.HashBlockSize != 0 || p.SchedulerBlockSize%block != 0 {
			return assertionError
		}
	}
	return ""
}
