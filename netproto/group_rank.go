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

// FirstChunkUnknown is the FirstChunk of a store that does not give it.
const FirstChunkUnknown = ^uint32(0)

// Lengths in bytes of a group rank frame: without pcp_rank, with it, and with the number
// of the first chunk too.
const (
	groupRankLen      = 6
	groupRankPCPLen   = 8
	groupRankChunkLen = 12
)

// parseGroupRank decodes a group rank frame of 6, 8 or 12 bytes. What is missing is 0 or
// FirstChunkUnknown.
func parseGroupRank(b []byte) (rank GroupRank, firstChunk uint32, err error) {
	firstChunk = FirstChunkUnknown
	switch len(b) {
	case groupRankChunkLen:
		firstChunk = binary.BigEndian.Uint32(b[groupRankPCPLen:])
		fallthrough
	case groupRankPCPLen:
		rank.PCPRank = binary.BigEndian.Uint16(b[groupRankLen:])
		fallthrough
	case groupRankLen:
		rank.Group = binary.BigEndian.Uint16(b)
		rank.TPRank = binary.BigEndian.Uint16(b[2:])
		rank.PPRank = binary.BigEndian.Uint16(b[4:])
		return rank, firstChunk, nil
	}
	return rank, firstChunk, ErrGroupRankLen
}
