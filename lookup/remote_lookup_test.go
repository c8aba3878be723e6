package lookup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// A lookup of blocks that are all remembered is answered at once if they are few enough, over all groups.
func TestLookupRememberedIsShort(t *testing.T) {
	for _, tc := range []struct {
		groups, hashes int
		want           bool
	}{{1, 2048, true}, {4, 2048, true}, {5, 2048, false}, {64, 128, true}, {64, 129, false}, {1, 2049, false}} {
		pool := coordinator.Pool{HashBlockSize: 16}
		for variant := range tc.groups {
			pool.Groups = append(pool.Groups, coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16, Variant: variant})
		}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: hourLease{&lookuptest.KeyStore{}}, Remote: patient})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(lookuptest.Chain("a", tc.hashes, 32), 32)
		storeAll(t, s, hashes)
		tokens := int64(16 * tc.hashes)
		asked, err := s.Lookup(t.Context(), tokens, hashes)
		require.NoError(t, err)
		require.Equal(t, tokens, asked.Tokens)
		answer, ok := s.Backend().LookupRemembered(tokens, hashes)
		require.Equal(t, tc.want, ok, "%+v", tc)
		if ok {
			require.Equal(t, asked, answer.Hit)
		}
	}
}

// A lookup that has to ask the backend finds that out soon, whatever its pool: event loops try.
func TestLookupRememberedGivesUpSoon(t *testing.T) {
	for kind, atMost := range map[coordinator.Kind]int{
		coordinator.FullAttention: 1, coordinator.SlidingWindow: 1 + maxRememberedBlocks/missCost/64,
	} {
		pool := coordinator.Pool{HashBlockSize: 16}
		for variant := range 4 {
			group := coordinator.Group{Kind: kind, BlockSize: 16, Variant: variant}
			if kind == coordinator.SlidingWindow {
				group.SlidingWindow = 1 << 20
			}
			pool.Groups = append(pool.Groups, group)
		}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: hourLease{&lookuptest.KeyStore{}}, Remote: patient})
		require.NoError(t, err)
		one := coordinator.NewHashes(lookuptest.Chain("a", 1, 32), 32)
		storeAll(t, s, one)
		_, err = s.Lookup(t.Context(), 16, one)
		require.NoError(t, err)
		compared := 0
		now := s.remote.shared.memory.present.now
		s.remote.shared.memory.present.now = func() int64 { compared++; return now() }
		_, ok := s.Backend().LookupRemembered(2048*16, coordinator.NewHashes(lookuptest.Chain("b", 2048, 32), 32))
		require.False(t, ok)
		require.Positive(t, compared)
		require.LessOrEqual(t, compared, atMost, "%v: calls for 64 blocks", kind)
	}
}
