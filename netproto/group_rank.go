package netproto

import "encoding/binary"

// Rank is a group and the ranks that hold blocks, as a store, an evict or a reset_rank names them.
// In a reset_rank 65535 stands for every group or rank.
type Rank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// rankPCPLen is the length in bytes of a rank with pcp_rank. If it is missing it is 0; four further
// bytes have no effect.
const rankPCPLen = 8

// endRank decodes a rank of 6, 8 or 12 bytes.
func (r *Reader) endRank() *Problem {
	b := r.scratch[:]
	to := &r.req.GroupRank
	to.Group, to.TPRank, to.PPRank = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:])
	if r.filled >= rankPCPLen {
		to.PCPRank = binary.BigEndian.Uint16(b[6:])
	}
	return nil
}
