package netproto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// requests collects what a Reader has read.
type requests struct {
	ranks    []Rank
	problems []error
}

func (*requests) Begin(*Request) bool          { return false }
func (*requests) Hashes(*Request, []byte) bool { return false }
func (*requests) Dropped(*Request)             {}
func (*requests) Control([]byte)               {}

func (r *requests) End(q *Request) {
	if q.Tag == TagResetRank {
		r.ranks, r.problems = append(r.ranks, q.GroupRank), append(r.problems, q.Problem)
	}
}

// A rank has 6 or 8 bytes, and no number of a chunk.
func TestResetRank(t *testing.T) {
	var wire []byte
	rank := Rank{Group: 1, TPRank: 0xffff, PPRank: 3, PCPRank: 4}
	wire = AppendResetRank(wire, nil, rank)
	for _, size := range []int{6, 8, 0, 4, 7, 10, 12} {
		frame := []byte{0, 1, 0xff, 0xff, 0, 3, 0, 4, 0, 0, 0, 9}[:size]
		wire = AppendRequest(wire, nil, TagResetRank, frame)
	}
	wire = AppendRequest(wire, nil, TagResetRank)
	wire = AppendRequest(wire, nil, TagResetRank, make([]byte, 8), nil)
	var got requests
	_, err := NewReader(Limits{}, 0).Feed(wire, &got)
	require.NoError(t, err)
	short := Rank{Group: 1, TPRank: 0xffff, PPRank: 3}
	require.Equal(t, []Rank{rank, short, rank}, got.ranks[:3])
	bad := ErrGroupRankLen
	require.Equal(t, []error{nil, nil, nil, bad, bad, bad, bad, bad, ErrMissingFrame, ErrExtraFrame}, got.problems)
}
