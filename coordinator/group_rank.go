package coordinator

// GroupRank names the group and the ranks that hold blocks.
//
// TPRank is the KV shard: the worker's tensor-parallel rank divided by the number of
// ranks that hold equal blocks. With 4 tensor-parallel ranks and 2 KV heads, ranks 0 and
// 1 hold shard 0, and 2 and 3 hold shard 1. (Reference: head_or_tp_rank in the worker's
// keys.)
type GroupRank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// AnyRank in a field of a GroupRank whose blocks are removed stands for every group or rank.
const AnyRank = ^uint16(0)

// IsAny reports whether each field is AnyRank: all of the pool is meant.
func (r GroupRank) IsAny() bool {
	return r == GroupRank{Group: AnyRank, TPRank: AnyRank, PPRank: AnyRank, PCPRank: AnyRank}
}
