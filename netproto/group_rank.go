package netproto

import "encoding/binary"

// GroupRank names the group and the ranks that hold a store's or evict's blocks.
//
// TPRank is the KV shard: the worker's tensor-parallel rank divided by the number of
// ranks that hold equal blocks. With 4 tensor-parallel ranks and 2 KV heads, ranks 0 and
// 1 hold shard 0, and 2 and 3 hold shard 1. (Reference: head_or_tp_rank in the worker's
// keys.)
type GroupRank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// AnyRank in a field of a reset_rank's GroupRank stands for every group or rank.
const AnyRank = ^uint16(0)

// IsAny reports whether each field is AnyRank. A reset_rank of that is a reset of the pool.
func (r GroupRank) IsAny() bool {
	return r == GroupRank{Group: AnyRank, TPRank: AnyRank, PPRank: AnyRank, PCPRank: AnyRank}
}

// Lengths in bytes of a group rank frame: without pcp_rank, with it, and with four bytes more,
// which have no effect.
const (
	groupRankLen     = 6
	groupRankPCPLen  = 8
	groupRankLongLen = 12
)

// parseGroupRank decodes a group rank frame of 6, 8 or 12 bytes. What is missing is 0.
func parseGroupRank(b []byte) (rank GroupRank, err error) {
	switch len(b) {
	case groupRankLongLen, groupRankPCPLen:
		rank.PCPRank = binary.BigEndian.Uint16(b[groupRankLen:])
		fallthrough
	case groupRankLen:
		rank.Group = binary.BigEndian.Uint16(b)
		rank.TPRank = binary.BigEndian.Uint16(b[2:])
		rank.PPRank = binary.BigEndian.Uint16(b[4:])
		return rank, nil
	}
	return rank, ErrGroupRankLen
}
