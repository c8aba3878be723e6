package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// answerInSteps is Answer and Explain in calls of the given work. calls counts them.
func answerInSteps(c *Coordinator, p, onAnyRank *Presence, numTokens int64, work int) (hit Hit, ends []GroupEnd, calls int, err error) {
	s := new(Scratch)
	s.BeginAnswer()
	done := false
	for ; !done; calls++ {
		if hit, done, err = c.AnswerSome(p, numTokens, s, work); err != nil {
			return hit, nil, calls, err
		}
	}
	for done = false; !done; calls++ {
		if ends, done, err = c.ExplainSome(p, onAnyRank, numTokens, s, ends, work); err != nil {
			return hit, nil, calls, err
		}
	}
	return hit, ends, calls, nil
}

// TestStepsChangeNothing compares answers in the smallest steps with those in one.
func TestStepsChangeNothing(t *testing.T) {
	calls, full := 0, 0
	for seed := range uint64(20_000) {
		s := &source{data: randomBytes(seed, 200)}
		c, err := New(s.pool())
		require.NoError(t, err)
		q := s.findRequest(c)
		p := &Presence{NumHashes: q.hashes, Everything: q.stored == nil, Bits: q.bits}
		tokens := max(0, int64(q.hashes)*int64(c.pool.HashBlockSize)-int64(s.below(12)))
		if c.NeedsAligned() {
			tokens -= tokens % c.Alignment()
		}
		want, wantErr := c.Answer(p, tokens, new(Scratch))
		var wantEnds []GroupEnd
		if wantErr == nil {
			wantEnds, wantErr = c.Explain(p, p, tokens)
		}
		got, ends, n, err := answerInSteps(c, p, p, tokens, 1)
		require.Equal(t, errorClass(wantErr), errorClass(err), "seed %d", seed)
		if err != nil {
			continue
		}
		require.Equal(t, want, got, "seed %d", seed)
		require.Equal(t, wantEnds, ends, "seed %d", seed)
		if calls += n; want.Tokens > 0 {
			full++
		}
	}
	require.Greater(t, calls, 60_000)
	require.Greater(t, full, 4000)
}

// TestLongSearchesAreSuspended answers a lookup of two million hashes whose groups agree
// nowhere: each call ends soon, and the answer is the same.
func TestLongSearchesAreSuspended(t *testing.T) {
	const n, work = 1 << 21, 10_000
	c := must(t, Pool{HashBlockSize: 16, Groups: []Group{
		{Kind: FullAttention, BlockSize: 16}, window(16, 17), {Kind: SlidingWindow, BlockSize: 32, SlidingWindow: 33},
	}})
	all, odd, even := make([]uint64, n/64), make([]uint64, n/64), make([]uint64, n/128)
	for i := range all {
		all[i], odd[i] = ^uint64(0), 0x5555_5555_5555_5555
	}
	for i := range even {
		even[i] = 0x3333_3333_3333_3333
	}
	p := &Presence{NumHashes: n, Bits: [][]uint64{all, odd, even}}
	want, err := c.Answer(p, 16*n, new(Scratch))
	require.NoError(t, err)
	got, _, calls, err := answerInSteps(c, p, p, 16*n, work)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Greater(t, calls, 100)
}
