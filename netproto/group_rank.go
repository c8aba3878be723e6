package netproto

import "encoding/binary"

// Rank is a group and the ranks that hold blocks, as a store, an evict or a reset_rank names them.
// In a reset_rank 65535 stands for every group or rank.
type Rank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// rankPCPLen is the length in bytes of a rank with pcp_rank. It may be missing, which is 0; four
// further bytes have no effect.
const rankPCPLen = 8

// parseRank decodes a rank of 6, 8 or 12 bytes.
func parseRank(b []byte) Rank {
	r := Rank{Group: binary.BigEndian.Uint16(b), TPRank: binary.BigEndian.Uint16(b[2:]), PPRank: binary.BigEndian.Uint16(b[4:])}
	if len(b) >= rankPCPLen {
		r.PCPRank = binary.BigEndian.Uint16(b[6:])
	}
	return r
}
