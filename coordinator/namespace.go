package coordinator

import (
	"fmt"
	"math"
	"slices"
)

// Engines of different tensor-parallel sizes can share a store if their blocks have one
// layout in it. Then the keys have a store namespace, and a block is stored in shards whose
// number does not depend on the engine.

// defaultKVCacheLayout is the engine's usual layout.
const defaultKVCacheLayout = "LBHNC"

// sharedFormats are the names of the layouts that can be shared.
var sharedFormats = map[string]string{"LBHNC": "tp_shared_lbhnc", "LBNHC": "tp_shared_lbnhc"}

// setNamespace sets the namespace of keys and the number of shards. (Reference: the worker's
// choice of store_namespace.)
func (c *Coordinator) setNamespace() {
	p := &c.pool
	if !c.rules.namespaces || p.StoreTPSize == nil && !p.EnableStoreTPLCM {
		return
	}
	layout := p.KVCacheLayout
	if layout == "" {
		layout = defaultKVCacheLayout
	}
	format, shared := sharedFormats[layout]
	size := p.storeTPSize()
	eligible := shared && size >= int64(p.TPSize) && size%int64(p.TPSize) == 0 && c.isShareable()
	switch {
	case eligible && int64(p.NumKVHead)%size == 0:
		c.numShards = int(size)
		c.namespace = fmt.Sprintf("@store_tp:%d@store_pp:%d@store_format:%s", size, p.PPSize, format)
	case eligible && p.NumKVHead == 1:
		c.namespace = fmt.Sprintf("@store_pp:%d@store_format:tp_shared_mqa", p.PPSize)
	default:
		c.namespace = fmt.Sprintf("@store_pp:%d@store_format:rank_local_tp%d_layout_%s", p.PPSize, p.TPSize, layout)
	}
}

// isShareable reports whether the pool's blocks can have a shared layout: those of a single
// group of plain full attention without context parallelism.
func (c *Coordinator) isShareable() bool {
	p := &c.pool
	return p.PCPSize == 1 && p.DCPSize == 1 && !p.EnableCrossLayersBlocks &&
		len(c.groups) == 1 && c.groups[0].Kind == FullAttention && !c.groups[0].Uniform
}

// storeTPSize returns the number of shards that the options ask for, 0 if they are none
// that the engine takes.
func (p *Pool) storeTPSize() int64 {
	if !p.EnableStoreTPLCM {
		return int64(max(0, *p.StoreTPSize))
	}
	if len(p.PrefillTPSizes) == 0 || slices.Min(p.PrefillTPSizes) < 1 {
		return 0
	}
	size := int64(1)
	for _, tp := range p.PrefillTPSizes {
		if size = lcm(size, int64(tp)); size > maxRanks {
			break // validateSharing refuses it
		}
	}
	return size
}

// validateSharing bounds the shards of a block: each costs a key prefix in memory.
func (p *Pool) validateSharing() error {
	if p.StoreTPSize == nil && !p.EnableStoreTPLCM {
		return nil
	}
	for i, tp := range p.PrefillTPSizes {
		if tp > maxRanks {
			return invalid([]string{fmt.Sprintf("prefill_tp_sizes[%d]", i), "prefill_tp_sizes"}, "%d is too large, at most %d ranks are possible", tp, maxRanks)
		}
	}
	if shards := p.storeTPSize(); shards*int64(p.PPSize) > maxRanks {
		return invalid([]string{"store_tp_size", "prefill_tp_sizes", "pp_size"}, "%d shards on %d pipeline ranks, at most %d ranks are possible", shards, p.PPSize, maxRanks)
	}
	return nil
}

// NumRanks returns a bound on the ranks and shards of all groups together, from the numbers of
// the pool alone. New takes time in proportion to it.
func (p Pool) NumRanks() int64 {
	const most = math.MaxInt32
	n := int64(max(1, len(p.Groups)))
	for _, size := range []int{p.TPSize, p.PPSize, p.PCPSize} {
		n = min(most, n*int64(min(most, max(1, size))))
	}
	if p.StoreTPSize != nil || p.EnableStoreTPLCM {
		if shards := p.storeTPSize(); shards > int64(p.TPSize) {
			n = min(most, n*min(most, shards))
		}
	}
	return n
}
