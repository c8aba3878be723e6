package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Rank is the rank of a worker that stores a block, as keys name it. TP is the number of the
// shard if keys are sharded.
type Rank struct{ TP, PP, PCP int }

// Ranks returns the ranks that must store a block of group g, in the order of their keys. A
// dropped group has none.
func (p *Pool) Ranks(g int) []Rank {
	if p.dropped(g) {
		return nil
	}
	pp := max(1, p.PPSize)
	if p.sharded() {
		shards, _ := p.shards()
		return ranks([]int{0}, shards, pp)
	}
	if !p.since("0.25.0") {
		return ranks([]int{p.PCPRank}, p.headRanks(), pp)
	}
	var pcp []int
	for r := range max(1, p.PCPSize) {
		pcp = append(pcp, r)
	}
	return ranks(pcp, p.tpRanks(g), pp)
}

// ranks returns all ranks of the given pcp ranks, tps tensor and pps pipeline ranks.
func ranks(pcps []int, tps, pps int) []Rank {
	var list []Rank
	for _, pcp := range pcps {
		for tp := range tps {
			for pp := range pps {
				list = append(list, Rank{TP: tp, PP: pp, PCP: pcp})
			}
		}
	}
	return list
}

// tp returns the number of tensor ranks.
func (p *Pool) tp() int { return max(1, p.TPSize) }

// heads returns the number of KV heads of the model.
func (p *Pool) heads() int {
	if p.NumKVHead == 0 {
		return p.tp()
	}
	return p.NumKVHead
}

// headRanks returns how many tensor ranks have KV heads of their own.
func (p *Pool) headRanks() int { return min(p.tp(), p.heads()) }

// tpRanks returns how many tensor ranks store different blocks of group g, from 0.25.1 on.
func (p *Pool) tpRanks(g int) int {
	switch {
	case p.DCPSize > 1:
		return p.tp()
	case !p.since("0.27.0"):
		return p.headRanks()
	}
	switch p.Groups[g].Kind {
	case "mamba":
		return p.tp()
	case "mla_attention", "sliding_window_mla", "hidden_state":
		return 1
	}
	return p.tp() / max(1, p.tp()/p.heads())
}

// Prefixes returns the prefixes of the keys of group g, one for each of its Ranks.
func (p *Pool) Prefixes(g int) []string {
	model := p.ModelName[strings.LastIndexByte(p.ModelName, '/')+1:] + p.namespace()
	if p.CachePrefix != "" {
		model = p.CachePrefix + "@" + model
	}
	var list []string
	for _, r := range p.Ranks(g) {
		list = append(list, fmt.Sprintf("%s@tp_rank:%d@pcp%d@dcp%d@pp_rank:%d@group:%d",
			model, r.TP, r.PCP, p.dcpRank(r.TP), r.PP, slices.Index(p.StoreGroups(), g)))
	}
	return list
}

// dcpRank returns the dcp rank in the keys of a tensor rank.
func (p *Pool) dcpRank(tp int) int {
	switch {
	case !p.since("0.25.0"):
		return p.DCPRank
	case p.DCPSize > 1:
		return tp % p.DCPSize
	}
	return 0
}

// namespace returns what keys have after the model name.
func (p *Pool) namespace() string {
	if !p.namespaced() {
		return ""
	}
	pp := max(1, p.PPSize)
	switch shards, eligible := p.shards(); {
	case p.sharded():
		return fmt.Sprintf("@store_tp:%d@store_pp:%d@store_format:tp_shared_%s", shards, pp, strings.ToLower(p.layout()))
	case eligible && p.heads() == 1:
		return fmt.Sprintf("@store_pp:%d@store_format:tp_shared_mqa", pp)
	}
	return fmt.Sprintf("@store_pp:%d@store_format:rank_local_tp%d_layout_%s", pp, p.tp(), p.layout())
}

// namespaced reports whether keys have a namespace.
func (p *Pool) namespaced() bool {
	return p.since("0.30.0") && (p.StoreTPSize != nil || p.EnableStoreTPLCM)
}

// layout returns the name of the KV cache layout.
func (p *Pool) layout() string {
	if p.KVCacheLayout == "" {
		return "LBHNC"
	}
	return p.KVCacheLayout
}

// sharded reports whether blocks are stored in shards of KV heads instead of by tensor rank.
func (p *Pool) sharded() bool {
	shards, eligible := p.shards()
	return eligible && p.heads()%shards == 0
}

// shards returns the number of shards that is configured, and whether the engine can use it.
func (p *Pool) shards() (shards int, eligible bool) {
	shards = p.configuredShards()
	kept := p.StoreGroups()
	if !p.namespaced() || shards == 0 || shards%p.tp() != 0 || len(kept) != 1 {
		return shards, false
	}
	group := p.Groups[kept[0]]
	return shards, group.Kind == "full_attention" && !group.Uniform &&
		(p.layout() == "LBHNC" || p.layout() == "LBNHC") &&
		p.PCPSize <= 1 && p.DCPSize <= 1 && !p.EnableCrossLayersBlocks
}

// configuredShards returns the number of shards of the options, 0 if they are not valid.
func (p *Pool) configuredShards() int {
	sizes := p.PrefillTPSizes
	if !p.EnableStoreTPLCM {
		sizes = nil
		if p.StoreTPSize != nil {
			sizes = []int{*p.StoreTPSize}
		}
	}
	if len(sizes) == 0 || slices.Min(sizes) <= 0 {
		return 0
	}
	shards := 1
	for _, size := range sizes {
		shards = lcm(shards, size)
	}
	return shards
}
