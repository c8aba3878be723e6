package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// bitsOf sets the given positions.
func bitsOf(positions ...int) []uint64 {
	set := make([]uint64, 4)
	for _, i := range positions {
		set[i/64] |= 1 << (i % 64)
	}
	return set
}

func TestExplain(t *testing.T) {
	full := Group{Kind: FullAttention, BlockSize: 16}
	window := Group{Kind: SlidingWindow, BlockSize: 16, SlidingWindow: 33} // two blocks
	for name, c := range map[string]struct {
		pool    Pool
		bits    [][]uint64
		partly  [][]uint64
		hashes  int
		tokens  int64
		end     []int64
		reason  []Reason
		missing []int64
	}{
		"complete":       {Pool{Groups: []Group{full}}, [][]uint64{bitsOf(0, 1, 2)}, nil, 3, 48, []int64{48}, []Reason{ReasonComplete}, []int64{-1}},
		"missing":        {Pool{Groups: []Group{full}}, [][]uint64{bitsOf(0, 2)}, nil, 3, 48, []int64{16}, []Reason{ReasonMissing}, []int64{1}},
		"rank":           {Pool{Groups: []Group{full}, TPSize: 2}, [][]uint64{bitsOf(0, 2)}, [][]uint64{bitsOf(0, 1, 2)}, 3, 48, []int64{16}, []Reason{ReasonRank}, []int64{1}},
		"hashes end":     {Pool{Groups: []Group{full}}, [][]uint64{bitsOf(0, 1, 2)}, nil, 3, 96, []int64{48}, []Reason{ReasonHashes}, []int64{-1}},
		"eagle":          {Pool{Groups: []Group{full}, UseEagle: true}, [][]uint64{bitsOf(0, 1, 2)}, nil, 3, 48, []int64{32}, []Reason{ReasonEagle}, []int64{-1}},
		"eagle, hole":    {Pool{Groups: []Group{full}, UseEagle: true}, [][]uint64{bitsOf(0, 1)}, nil, 3, 48, []int64{16}, []Reason{ReasonMissing}, []int64{2}},
		"nothing":        {Pool{Groups: []Group{full}}, [][]uint64{nil}, nil, 0, 48, []int64{0}, []Reason{ReasonNothing}, []int64{-1}},
		"no tokens":      {Pool{Groups: []Group{full}}, [][]uint64{nil}, nil, 3, 0, []int64{0}, []Reason{ReasonNothing}, []int64{-1}},
		"alignment":      {Pool{Groups: []Group{full, {Kind: FullAttention, BlockSize: 64}}}, [][]uint64{bitsOf(0, 1, 2, 3, 4, 5), bitsOf(0, 1)}, nil, 8, 128, []int64{64, 128}, []Reason{ReasonAlignment, ReasonComplete}, []int64{6, -1}},
		"window":         {Pool{Groups: []Group{full, window}}, [][]uint64{bitsOf(0, 1, 2, 3), bitsOf(0, 1, 3)}, nil, 4, 64, []int64{64, 32}, []Reason{ReasonComplete, ReasonWindow}, []int64{-1, 2}},
		"window, rank":   {Pool{Groups: []Group{window}, PPSize: 2}, [][]uint64{bitsOf(0, 1)}, [][]uint64{bitsOf(0, 1, 3)}, 4, 64, []int64{32}, []Reason{ReasonWindow}, []int64{2}},
		"window, rank3":  {Pool{Groups: []Group{window}, PPSize: 2}, [][]uint64{bitsOf(0, 1, 2)}, [][]uint64{bitsOf(0, 1, 2, 3)}, 4, 64, []int64{48}, []Reason{ReasonRank}, []int64{3}},
		"window, eagle":  {Pool{Groups: []Group{window}, UseEagle: true}, [][]uint64{bitsOf(0, 1, 2, 6, 7)}, nil, 8, 128, []int64{32}, []Reason{ReasonWindow}, []int64{5}},
		"mamba":          {Pool{Groups: []Group{{Kind: Mamba, BlockSize: 16}}}, [][]uint64{bitsOf(1)}, nil, 4, 64, []int64{32}, []Reason{ReasonMissing}, []int64{3}},
		"state behind":   {Pool{Groups: []Group{full, {Kind: Mamba, BlockSize: 48, MambaCacheMode: "align"}}, VLLM: "0.28.0"}, [][]uint64{bitsOf(0, 1, 2, 3, 4), bitsOf(4)}, nil, 5, 112, []int64{80, 80}, []Reason{ReasonHashes, ReasonHashes}, []int64{-1, -1}},
		"five of six":    {Pool{Groups: []Group{full, {Kind: Mamba, BlockSize: 48, MambaCacheMode: "align"}}, VLLM: "0.28.0"}, [][]uint64{bitsOf(0, 1, 2, 3, 4), bitsOf(4)}, nil, 5, 96, []int64{80, 80}, []Reason{ReasonComplete, ReasonComplete}, []int64{-1, -1}},
		"one left, rest": {Pool{Groups: []Group{full}, VLLM: NewestRelease()}, [][]uint64{bitsOf(0, 1, 2)}, nil, 4, 64, []int64{48}, []Reason{ReasonComplete}, []int64{-1}},
		"one block":      {Pool{Groups: []Group{full}, VLLM: NewestRelease()}, [][]uint64{bitsOf(0)}, nil, 1, 16, []int64{0}, []Reason{ReasonComplete}, []int64{-1}},
		"chunked":        {Pool{Groups: []Group{{Kind: ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: 32}}}, [][]uint64{bitsOf()}, nil, 3, 48, []int64{32}, []Reason{ReasonMissing}, []int64{2}},
		"one left":       {Pool{Groups: []Group{full, window}, VLLM: "0.28.0"}, [][]uint64{bitsOf(0, 1, 2, 3), bitsOf(2, 3)}, nil, 4, 64, []int64{48, 0}, []Reason{ReasonComplete, ReasonWindow}, []int64{-1, 1}},
		"shared spec":    {Pool{Groups: []Group{full, full}}, [][]uint64{bitsOf(0, 1, 2), bitsOf(0)}, nil, 3, 48, []int64{48, 16}, []Reason{ReasonComplete, ReasonMissing}, []int64{-1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			coord, err := New(c.pool)
			require.NoError(t, err)
			partly := c.partly
			if partly == nil {
				partly = make([][]uint64, len(c.pool.Groups))
			}
			p := &Presence{NumHashes: c.hashes, Bits: c.bits}
			hit, ends, err := coord.Explain(p, &Presence{NumHashes: c.hashes, Bits: partly}, c.tokens)
			require.NoError(t, err)
			want, err := coord.Answer(p, c.tokens, new(Scratch))
			require.NoError(t, err)
			require.Equal(t, want, hit)
			for g, end := range ends {
				require.Equal(t, g, end.Group)
				require.Equal(t, c.pool.Groups[g].Kind, end.Kind)
				require.Equal(t, c.end[g], end.EndTokens, "group %d", g)
				require.Equal(t, c.reason[g], end.Reason, "group %d", g)
				require.Equal(t, c.missing[g], end.FirstMissing, "group %d", g)
			}
			require.Len(t, ends, len(c.end))
		})
	}
}

func TestExplainFailsAsAnswerDoes(t *testing.T) {
	coord, err := New(Pool{Groups: []Group{{Kind: Mamba, BlockSize: 16}}})
	require.NoError(t, err)
	none := &Presence{NumHashes: 2, Bits: make([][]uint64, 1)}
	_, _, err = coord.Explain(none, none, 48)
	require.ErrorIs(t, err, ErrIndexOutOfRange)
	_, _, err = coord.Explain(none, none, 17)
	require.ErrorIs(t, err, ErrPrecondition)
}

func groupEnd(g int, kind Kind, tokens int64, reason Reason, missing, gapStart, gapEnd int64) GroupEnd {
	return GroupEnd{Group: g, Kind: kind, EndTokens: tokens, Reason: reason, FirstMissing: missing, GapStart: gapStart, GapEnd: gapEnd}
}

// A request with fewer hashes than tokens is answered where the full-attention group
// ends first, so it is explained, too, although the others would fail alone.
func TestExplainAnswersAsAnswerDoes(t *testing.T) {
	window := Group{Kind: SlidingWindow, BlockSize: 16, SlidingWindow: 33} // two blocks
	local := Group{Kind: ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: 64}
	for name, tc := range map[string]struct {
		groups []Group
		hashes string
		tokens int64
		stored string // hashes, of all groups
		hit    int64
		ends   []GroupEnd
	}{
		"all of it": {[]Group{full(16), window, mamba(16), local}, "abc", 80, "abc", 48, []GroupEnd{
			groupEnd(0, FullAttention, 48, ReasonHashes, -1, 0, 0), groupEnd(1, SlidingWindow, 48, ReasonHashes, -1, 0, 0),
			groupEnd(2, Mamba, 48, ReasonHashes, -1, 0, 0), groupEnd(3, ChunkedLocalAttention, 48, ReasonHashes, -1, 0, 0),
		}},
		"a hole": {[]Group{full(16), window}, "abcd", 80, "ab", 32, []GroupEnd{
			groupEnd(0, FullAttention, 32, ReasonMissing, 2, 2, 4), groupEnd(1, SlidingWindow, 32, ReasonWindow, 2, 2, 4),
		}},
		"no key": {[]Group{full(32), window}, "a", 32, "", 0, []GroupEnd{
			groupEnd(0, FullAttention, 0, ReasonHashes, -1, 0, 0), groupEnd(1, SlidingWindow, 0, ReasonHashes, -1, 0, 0),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := must(t, Pool{Groups: tc.groups})
			store := fakeStore{held: map[string]bool{}}
			for g := range tc.groups {
				for _, hash := range []byte(tc.stored) {
					store.held[c.key(g, 0, []byte{hash})] = true
				}
			}
			hit, ends, _, err := c.LookupExplain(tc.tokens, letters(tc.hashes), ExistsFunc(store.exists))
			require.NoError(t, err)
			require.Equal(t, tc.hit, hit.Tokens)
			require.Equal(t, tc.ends, ends)
		})
	}
}
