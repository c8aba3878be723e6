package coordinator

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckStart(t *testing.T) {
	c := must(t, Pool{VLLM: "0.28.0", SchedulerBlockSize: 64})
	for token, want := range map[int64]int64{-1: 0, 63: 0, 64: 64, 127: 64, 128: 128, 1000: 128} {
		hashes := c.HashesFrom(serial(9), token) // of 144 tokens
		assert.Equal(t, want, hashes.Start(), token)
		assert.Equal(t, serial(9).Blob()[want/16*8:], hashes.Blob(), token)
	}
	assert.Zero(t, c.HashesFrom(Hashes{}, 1000).Start())
	for _, start := range []int64{-64, 16, 63, 256} {
		_, err := c.Lookup(200, serial(4).From(start), ExistsFunc(new(rounds).exists))
		require.ErrorIs(t, err, ErrPrecondition, "start %d", start)
	}
	var store rounds
	for _, hashes := range []Hashes{serial(0), serial(4)} { // all before the start, or some behind
		hit, err := c.Lookup(200, NewHashes(hashes.Blob(), 8).From(192), ExistsFunc(store.exists))
		require.NoError(t, err)
		assert.EqualValues(t, 192, hit.Tokens)
	}
	assert.Empty(t, store.calls, "200 tokens have no block behind 192")
}

// TestLookupFromStart says how many keys each round asks of a lookup that begins late in a prompt.
func TestLookupFromStart(t *testing.T) {
	const n, start = 5150, 5000
	pool := Pool{VLLM: "0.28.0", TPSize: 8, Groups: []Group{full(16), window(16, 1024)}}
	c := must(t, pool)
	hashes := serial(n)
	before := map[string]bool{} // the keys of what lies before the start
	for i := range start {
		for g := range 2 {
			for rank := range 8 {
				before[c.key(g, rank, hashes.At(i))] = true
			}
		}
	}
	behind := func(held int) (hit Hit, sizes []int) {
		var store rounds
		for g := range 2 { // nothing before the start is stored
			store.hold(c, g, hashes, 0, func(i int) bool { return start <= i && i < start+held })
		}
		hit, err := c.Lookup(16*n, NewHashes(hashes.Blob()[8*start:], 8).From(16*start), ExistsFunc(store.exists))
		require.NoError(t, err)
		for key := range store.times {
			assert.False(t, before[key], key)
		}
		return hit, store.sizes()
	}
	hit, sizes := behind(0)
	assert.EqualValues(t, 16*start, hit.Tokens)
	assert.Equal(t, []int{64 * 8}, sizes)
	hit, sizes = behind(10)
	assert.EqualValues(t, 16*(start+10), hit.Tokens, "the window reaches in front of the start")
	assert.Equal(t, []int{64 * 8, 10 * 8}, sizes)
	hit, sizes = behind(n - start)
	assert.EqualValues(t, 16*(n-1), hit.Tokens)
	assert.Equal(t, []int{64 * 8, (n - start - 64 + 65) * 8}, sizes)
}

// A lookup may begin as far on as 32 bits say.
func TestFarthestStart(t *testing.T) {
	const start = int64(1)<<32 - 2
	c := must(t, Pool{VLLM: "0.28.0", HashBlockSize: 1, Groups: []Group{full(1), window(1, 8)}})
	var store rounds
	for g := range 2 {
		store.hold(c, g, serial(4), 0, below(3))
	}
	hit, err := c.Lookup(start+4, serial(4).From(start), ExistsFunc(store.exists))
	if math.MaxInt == math.MaxInt32 {
		require.ErrorIs(t, err, ErrPrecondition)
		return
	}
	require.NoError(t, err)
	assert.EqualValues(t, start+3, hit.Tokens)
	assert.Equal(t, []int{8}, store.sizes())
}

// A number that no lookup begins at stays one.
func TestHashesFromNoStart(t *testing.T) {
	c := must(t, Pool{VLLM: "0.28.0", HashBlockSize: 1, Groups: []Group{full(1)}})
	for _, start := range []int64{-1, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1 << 40, -1 << 40} {
		_, err := c.Lookup(1<<41, serial(4).From(start), ExistsFunc(new(rounds).exists))
		require.ErrorIs(t, err, ErrPrecondition, start)
	}
}
