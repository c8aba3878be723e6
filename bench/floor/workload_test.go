package floor

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

func TestWorkload(t *testing.T) {
	const chains, hashes, tokens = 40, 100, 16
	whole, w := newWorkload(1, chains, hashes, tokens), newWorkload(1, chains, hashes, tokens)
	w.cut(tokens)
	require.Equal(t, chains, w.len())
	cut, places := 0, map[int]bool{}
	for i := range chains {
		frames, used, err := netproto.ParseMessage(w.request(i), netproto.Limits{}, nil)
		require.NoError(t, err)
		require.Equal(t, len(w.request(i)), used)
		require.Len(t, frames, 4)
		assert.Equal(t, "lookup", string(frames[0]))
		assert.EqualValues(t, hashes*tokens, netproto.ParseInt(frames[1]))
		assert.EqualValues(t, hashLen, netproto.ParseInt(frames[2]))
		assert.Equal(t, w.hashes(i), frames[3])

		stored := whole.hashes(i)
		hit := 0
		for hit < hashes && bytes.Equal(frames[3][hit*hashLen:][:hashLen], stored[hit*hashLen:][:hashLen]) {
			hit++
		}
		if hit < hashes {
			cut++
			places[hit] = true
			assert.Equal(t, stored[(hit+1)*hashLen:], frames[3][(hit+1)*hashLen:], "only one hash is another")
		}
		assert.Equal(t, netproto.AppendHit(nil, nil, uint32(hit*tokens)), w.answer(i))
		for j := range i {
			assert.NotEqual(t, whole.hashes(j), stored)
		}
	}
	assert.Equal(t, chains/10, cut)
	assert.Greater(t, len(places), 1, "at random blocks")

	order := w.order()
	assert.False(t, slices.IsSorted(order))
	slices.Sort(order)
	for i, at := range order {
		assert.Equal(t, i, at, "each once")
	}
}

// The seed decides what is asked, and in which order.
func TestWorkloadSeed(t *testing.T) {
	ask := func(seed uint64, change func(*chainSet)) (requests []byte, order []int) {
		w := newWorkload(seed, 40, 10, 16)
		change(w)
		return w.bytes, w.order()
	}
	for _, change := range []func(*chainSet){func(w *chainSet) { w.cut(16) }, func(w *chainSet) { w.leave(16) }} {
		requests, order := ask(1, change)
		again, orderAgain := ask(1, change)
		assert.Equal(t, requests, again)
		assert.Equal(t, order, orderAgain)
		other, otherOrder := ask(2, change)
		assert.NotEqual(t, requests, other)
		assert.NotEqual(t, order, otherOrder)
	}
}

func TestWorkloadLeave(t *testing.T) {
	const chains, hashes, tokens = 40, 100, 16
	whole, w := newWorkload(1, chains, hashes, tokens), newWorkload(1, chains, hashes, tokens)
	w.leave(tokens)
	left := 0
	for i := range chains {
		stored, asked := whole.hashes(i), w.hashes(i)
		hit := int(w.tokens(i)) / tokens
		assert.Equal(t, stored[:hit*hashLen], asked[:hit*hashLen])
		assert.Equal(t, hit < hashes, w.left[i])
		if !w.left[i] {
			continue
		}
		left++
		for at := hit; at < hashes; at++ {
			assert.NotEqual(t, stored[at*hashLen:(at+1)*hashLen], asked[at*hashLen:(at+1)*hashLen], "a chain does not come back")
		}
	}
	assert.Equal(t, chains/2, left)
}

func TestNumChains(t *testing.T) {
	for _, test := range []struct {
		hashes, entries int
		cache           int64
		want            int
	}{
		{131_072, 1_000_000, 64 << 20, 20},
		{512, 1_000_000, 64 << 20, 2050},
		{512, 1_000_000, 32 << 20, 1960},
		{512, 1, 2 * 32 * 512 * 40, 50}, // 40 would only fill it
		{64, 1, 1, 20},
		{1, 101, 1, 110},
	} {
		got := numChains(test.hashes, test.entries, test.cache)
		assert.Equal(t, test.want, got, "%+v", test)
		assert.Greater(t, int64(2*hashLen*test.hashes*got), test.cache)
	}
}
