package oracle

import (
	"encoding/json"
	"slices"
)

// Revisions of the reference.
const (
	Rev20260604 = "2026-06-04"
	Rev20260620 = "2026-06-20"
	Rev20260817 = "2026-08-17"
)

// Group is a group of layers. Its JSON names are those of the recorded answers. Sizes are in
// tokens.
type Group struct {
	Kind               string `json:"kind"`
	BlockSize          int    `json:"block_size"`
	SlidingWindow      int    `json:"sliding_window"`
	AttentionChunkSize int    `json:"attention_chunk_size"`
	MambaCacheMode     string `json:"mamba_cache_mode"`
	Variant            int    `json:"variant"`
	IsEagleGroup       bool   `json:"is_eagle_group"`
}

// Pool is the configuration of the engine whose blocks are looked up. Sizes are in tokens.
// HashBlockSize and SchedulerBlockSize must be set. A number of ranks of 0 means 1.
type Pool struct {
	Revision           string  `json:"revision"`
	HashBlockSize      int     `json:"hash_block_size"`
	SchedulerBlockSize int     `json:"scheduler_block_size"`
	UseEagle           bool    `json:"use_eagle"`
	RetentionInterval  *int    `json:"retention_interval"`
	TPSize             int     `json:"tp_size"`
	PPSize             int     `json:"pp_size"`
	PCPSize            int     `json:"pcp_size"`
	DCPSize            int     `json:"dcp_size"`
	PCPRank            int     `json:"pcp_rank"`
	NumKVHead          int     `json:"num_kv_head"` // 0: TPSize
	Groups             []Group `json:"groups"`
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

// spec returns the part of g that is equal in all members of an attention group.
func (g Group) spec() Group {
	g.IsEagleGroup = false
	if g.MambaCacheMode == "none" {
		g.MambaCacheMode = ""
	}
	return g
}

// attentionGroup is the groups of one spec.
type attentionGroup struct {
	Group
	members []int // indexes of the groups
	eagle   bool  // one of them is an eagle group
}

// eagleFlags returns for each group whether it is an eagle group.
func (p *Pool) eagleFlags() []bool {
	flags := make([]bool, len(p.Groups))
	for g, group := range p.Groups {
		flags[g] = group.IsEagleGroup
	}
	if p.UseEagle && !slices.Contains(flags, true) {
		for g := range flags {
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
	for g, group := range p.Groups {
		list := &others
		if group.full() {
			list = &full
		}
		for i := range *list {
			if a := &(*list)[i]; a.spec() == group.spec() {
				a.members = append(a.members, g)
				a.eagle = a.eagle || flags[g]
				continue next
			}
		}
		*list = append(*list, attentionGroup{Group: group, members: []int{g}, eagle: flags[g]})
	}
	return append(full, others...)
}

// fineGrained reports whether hits may end inside a block.
func (p *Pool) fineGrained() bool {
	return p.Revision == Rev20260817 && slices.ContainsFunc(p.Groups, func(g Group) bool {
		return g.Kind == "mamba" && g.MambaCacheMode == "align" && g.BlockSize > p.HashBlockSize
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
