package lookup

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pollUntil polls until there is an answer, as a scheduler would, and returns how
// many polls that took.
func pollUntil(t *testing.T, c *AsyncClient, id string, tokens uint32, hashes []byte) (hit uint32, polls int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; polls++ {
		hit, ready, err := c.Poll(id, tokens, hashes, 32)
		require.NoError(t, err)
		if ready {
			return hit, polls
		}
		require.True(t, time.Now().Before(deadline), "no answer")
		time.Sleep(50 * time.Microsecond)
	}
}

func TestAsyncByAnchors(t *testing.T) {
	s := startServer(t, blocks16, Limits{})
	ctx := context.Background()
	store := dialTest(t, s)
	async, err := DialAsync(ctx, s.Addrs()[0], WithTimeout(patience), WithAnchors(100))
	require.NoError(t, err)
	defer async.Close()

	const n = 1000
	hashes := make([]byte, n*32)
	_, _ = rand.Read(hashes)
	require.NoError(t, store.StoreChain(ctx, Place{}, 0, nil, hashes, 32))
	hit, _ := pollUntil(t, async, "first", n*16, hashes)
	assert.EqualValues(t, n*16, hit)
	assert.Zero(t, s.anchored.Load(), "by all hashes, while the server is asked how")

	for range 2 { // the second time without digests
		hit, _ = pollUntil(t, async, "whole", n*16, hashes)
		assert.EqualValues(t, n*16, hit)
	}
	assert.EqualValues(t, 2, s.anchored.Load())
	assert.Zero(t, s.undetermined.Load())

	for _, at := range []int{0, 1, 99, 500, n - 1} {
		cut := slices.Clone(hashes)
		_, _ = rand.Read(cut[at*32:])
		hit, _ = pollUntil(t, async, "cut", n*16, cut)
		assert.EqualValues(t, at*16, hit)
	}
	assert.EqualValues(t, 7, s.anchored.Load())
	assert.EqualValues(t, 4, s.undetermined.Load(), "a miss of the first block needs one exchange, others two")

	before := s.anchored.Load()
	hit, _ = pollUntil(t, async, "short", 99*16, hashes[:99*32])
	assert.EqualValues(t, 99*16, hit)
	assert.Equal(t, before, s.anchored.Load())
}

// A poll that goes on needs the hashes it began with.
func TestAsyncByAnchorsOtherHashes(t *testing.T) {
	s := startServer(t, blocks16, Limits{})
	ctx := context.Background()
	store := dialTest(t, s)
	async, err := DialAsync(ctx, s.Addrs()[0], WithTimeout(patience), WithAnchors(1))
	require.NoError(t, err)
	defer async.Close()
	hashes := make([]byte, 500*32)
	_, _ = rand.Read(hashes)
	require.NoError(t, store.StoreChain(ctx, Place{}, 0, nil, hashes[:250*32], 32))
	pollUntil(t, async, "learn", 500*16, hashes)

	_, ready, err := async.Poll("a", 500*16, hashes, 32)
	require.NoError(t, err)
	require.False(t, ready)
	require.Eventually(t, func() bool { return s.undetermined.Load() == 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		_, ready, err = async.Poll("a", 16, hashes[:32], 32)
		return ready
	}, patience, time.Millisecond)
	assert.ErrorIs(t, err, ErrRequest)

	_, ready, err = async.Poll("b", 500*16, hashes, 32)
	require.NoError(t, err)
	require.False(t, ready)
	async.Discard("b")
	hit, _ := pollUntil(t, async, "b", 500*16, hashes)
	assert.EqualValues(t, 250*16, hit)
	async.pipe.mu.Lock()
	defer async.pipe.mu.Unlock()
	assert.Empty(t, async.pending)
	assert.Zero(t, async.answered.Len())
	assert.Zero(t, async.size)
}
