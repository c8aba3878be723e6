package netproto

import "encoding/binary"

// Rank is a group and the ranks that hold blocks, as a store, an evict or a reset_rank names them.
// In a reset_rank 65535 stands for every group or rank.
type Rank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// Lengths in bytes of a group rank frame: without pcp_rank, with it, and with four bytes more,
// which have no effect.
const (
	groupRankLen     = 6
	groupRankPCPLen  = 8
	groupRankLongLen = 12
)

// parseGroupRank decodes a group rank frame of 6, 8 or 12 bytes. What is missing is 0.
func parseGroupRank(b []byte) (rank Rank, err error) {
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
