package lookup

import (
	"context"
	"encoding/hex"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// Of what a lookup lacks, a look asks for what an engine saves.
func TestSampleMissing(t *testing.T) {
	two := coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 32}}}
	chunks := coordinator.Pool{VLLM: "0.28.0", HashBlockSize: 16, SchedulerBlockSize: 32, Groups: renewedPool.Groups}
	states := coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.Mamba, BlockSize: 16},
	}}
	for name, of := range map[string]struct {
		pool                 coordinator.Pool
		tokens, start, found int
		want                 [][2]int // group and hash
	}{
		"first, last, between": {blocks16.Pool, 100 * 16, 0, 9, [][2]int{{0, 9}, {0, 39}, {0, 69}, {0, 99}}},
		"behind a start":       {blocks16.Pool, 100 * 16, 50, 0, [][2]int{{0, 50}, {0, 66}, {0, 82}, {0, 99}}},
		"one":                  {blocks16.Pool, 10*16 + 7, 0, 9, [][2]int{{0, 9}}},
		"all found":            {blocks16.Pool, 10 * 16, 0, 10, nil},
		"two hashes a block":   {two, 7 * 16, 0, 3, [][2]int{{0, 3}, {0, 5}}},
		"a window":             {chunks, 100 * 16, 0, 97, [][2]int{{0, 97}, {0, 98}, {0, 99}, {1, 99}}},
		"no states":            {states, 100 * 16, 0, 99, [][2]int{{0, 99}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewService(ServiceConfig{Pool: of.pool, Backend: &lookuptest.KeyStore{}, Remote: patient})
			require.NoError(t, err)
			all := coordinator.NewHashes(lookuptest.Chain("a", 100, 32), 32)
			groups, keys := s.SampleMissing(int64(of.tokens), coordinator.NewHashes(all.Bytes()[32*of.start:], 32).From(int64(16*of.start)), of.found)
			var got [][2]int
			for i, g := range groups {
				for n := range all.Len() {
					if string(all.At(n)) == string(keys[32*i:32*i+32]) {
						got = append(got, [2]int{g, n})
					}
				}
			}
			require.Equal(t, of.want, got)
		})
	}
}

// A look leases nothing if the store can be asked so, counts as no lookup's, and leaves a store that fails to lookups.
func TestLook(t *testing.T) { synctest.Test(t, testLook) }

func testLook(t *testing.T) {
	store := &peekStore{}
	pool := coordinator.Pool{HashBlockSize: 16, TPSize: 2, NumKVHead: 2}
	s, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience, BreakerFailures: 2, BreakerPause: time.Second}})
	require.NoError(t, err)
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 3, 32), 32)
	keyOf := func(rank, block int) string {
		return s.coord.KeyPrefix(0, s.coord.Ranks(0)[rank]) + hex.EncodeToString(hashes.At(block))
	}
	require.NoError(t, store.Store(t.Context(), []string{keyOf(0, 0), keyOf(1, 0), keyOf(1, 1)}))
	before := s.Stat()
	ranks, err := s.Backend().Look(t.Context(), []int{0, 0, 0}, hashes)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 0}, ranks)
	require.Equal(t, [2]int{0, 1}, [2]int{store.asked, store.peeked})
	require.Equal(t, before, s.Stat())

	store.Before = func(context.Context, string, []string) error { return lookuptest.ErrStore }
	for range 4 {
		_, err = s.Backend().Look(t.Context(), []int{0}, hashes)
		require.Error(t, err)
	}
	require.Equal(t, 3, store.peeked, "the breaker is open")
	time.Sleep(2 * time.Second)
	_, err = s.Backend().Look(t.Context(), []int{0}, hashes)
	require.ErrorIs(t, err, errStoreFails, "a lookup tries it")
	store.Before = nil
	_, err = s.Lookup(t.Context(), 48, hashes)
	require.NoError(t, err)
	require.Equal(t, 1, store.asked)
	_, err = s.Backend().Look(t.Context(), []int{0}, hashes)
	require.NoError(t, err)
}
