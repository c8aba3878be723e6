package coordinator

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/conformance"
)

// fakeStore holds keys and remembers the keys that it checked.
type fakeStore struct {
	held    map[string]bool
	checked []string
	calls   int
}

func (s *fakeStore) exists(keys []string) ([]int, error) {
	s.calls++
	s.checked = keys
	answers := make([]int, len(keys))
	for i, key := range keys {
		if s.held[key] {
			answers[i] = 1
		}
	}
	return answers, nil
}

// letters are one-byte hashes: 'a' is 61 in hex.
func letters(text string) Hashes { return NewHashes([]byte(text), 1) }

func TestKeyText(t *testing.T) {
	c := must(t, Pool{
		ModelName: "org/Model-7B/", CachePrefix: "team/blue", TPSize: 4, NumKVHead: 2, PPSize: 2, PCPRank: 3, DCPRank: 5,
		Groups: []Group{full(16), window(16, 32)},
	})
	require.Len(t, c.Ranks(0), 4, "two heads fill two of four tensor ranks")
	assert.Equal(t, "team/blue@Model-7B@tp_rank:1@pcp3@dcp5@pp_rank:1@group:1@ab0c", c.key(1, 3, []byte{0xAB, 0x0C}))
	c = must(t, Pool{ModelName: "m"})
	assert.Equal(t, "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@61", c.key(0, 0, []byte("a")))
}

func TestLookupCountsRanks(t *testing.T) {
	c := must(t, Pool{ModelName: "m", TPSize: 2})
	key := func(rank int, hash string) string { return c.key(0, rank, []byte(hash)) }
	store := fakeStore{held: map[string]bool{key(0, "a"): true, key(1, "a"): true, key(0, "b"): true}}
	hit, err := c.Lookup(48, letters("abc"), ExistsFunc(store.exists))
	require.NoError(t, err)
	assert.Equal(t, int64(16), hit.Tokens, "b lacks a rank")
	assert.Equal(t, []string{key(0, "a"), key(1, "a"), key(0, "b"), key(1, "b"), key(0, "c"), key(1, "c")}, store.checked)
}

func TestLookupIsSpared(t *testing.T) {
	store := fakeStore{}
	wide := must(t, Pool{HashBlockSize: 8, Groups: []Group{full(32), window(8, 8)}})
	for _, tc := range []struct {
		tokens int64
		hashes string
	}{{0, "abcd"}, {-32, "abcd"}, {32, ""}, {33, ""}, {32, "abc"}} {
		hit, err := wide.Lookup(tc.tokens, letters(tc.hashes), ExistsFunc(store.exists))
		require.NoError(t, err, "%+v", tc)
		assert.Zero(t, hit)
		// Without a key to check even the finders' errors do not come up.
		var s Scratch
		hit, err = wide.Answer(&Presence{NumHashes: len(tc.hashes), Bits: make([][]uint64, 2)}, tc.tokens, &s)
		require.NoError(t, err, "%+v", tc)
		assert.Zero(t, hit)
	}
	assert.Zero(t, store.calls)
}

func TestLookupErrors(t *testing.T) {
	answering := func(answers []int, err error) ExistsFunc {
		return func([]string) ([]int, error) { return answers, err }
	}
	c := must(t, Pool{})
	_, err := c.Lookup(17, letters("ab"), answering(nil, nil))
	require.ErrorIs(t, err, ErrPrecondition)
	for _, answers := range [][]int{nil, {1}, {1, 1, 1}} {
		_, err = c.Lookup(32, letters("ab"), answering(answers, nil))
		require.ErrorIs(t, err, ErrAnswerCount)
	}
	hit, err := c.Lookup(32, letters("ab"), answering([]int{1, 1}, conformance.ErrStore))
	require.NoError(t, err)
	assert.Zero(t, hit, "a store that fails holds nothing")
	for _, odd := range []int{0, -1, 2} {
		hit, err = c.Lookup(32, letters("ab"), answering([]int{1, odd}, nil))
		require.NoError(t, err)
		assert.Equal(t, int64(16), hit.Tokens, "only 1 is present")
	}

	c = must(t, Pool{TPSize: 2, VLLM: "0.28.0"})
	_, err = c.Lookup(32, letters("ab"), answering([]int{1, 1, 1}, nil))
	require.ErrorIs(t, err, ErrIndexOutOfRange)
	hit, err = c.Lookup(33, letters("ab"), answering([]int{1, 1, 0}, nil))
	require.NoError(t, err, "the missing answer is not reached")
	assert.Equal(t, int64(16), hit.Tokens)
	hit, err = c.Lookup(33, letters("ab"), answering([]int{1, 1, 1, 1, 0}, nil))
	require.NoError(t, err)
	assert.Equal(t, int64(32), hit.Tokens)
}

// Lookups take any number of tokens, also in pools whose rules read beyond it.
func TestLookupOfHugePrompts(t *testing.T) {
	for _, pool := range []Pool{
		{VLLM: NewestRelease(), UseEagle: true},
		{VLLM: NewestRelease(), CacheHitAlignmentTokens: 16, Groups: []Group{full(32), align(mamba(32))}},
		{VLLM: "0.29.0", Groups: []Group{full(32), align(mamba(32))}},
	} {
		hit, err := must(t, pool).Lookup(math.MaxInt64, letters("abcd"), ExistsFunc(func(keys []string) ([]int, error) {
			return slices.Repeat([]int{1}, len(keys)), nil
		}))
		if err == nil {
			assert.LessOrEqual(t, hit.Tokens, int64(64), pool.VLLM)
		} else {
			require.ErrorIs(t, err, ErrIndexOutOfRange)
		}
	}
}

// lookupAll is Lookup by all keys in one round, in the reference's order.
func (c *Coordinator) lookupAll(numTokens int64, hashes Hashes, exists ExistsFunc) (Hit, error) {
	hit, _, _, err := c.LookupExplain(numTokens, hashes, exists)
	if errors.Is(err, conformance.ErrStore) { // to a lookup it holds nothing
		return Hit{}, nil
	}
	return hit, err
}
