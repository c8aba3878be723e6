package lookup

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

func TestServiceRefusesPools(t *testing.T) {
	_, err := NewService(ServiceConfig{Pool: coordinator.Pool{Revision: coordinator.Revision20260604}})
	require.ErrorIs(t, err, ErrNotBuilt)
	_, err = NewService(ServiceConfig{Pool: coordinator.Pool{Groups: make([]coordinator.Group, 65)}})
	require.Error(t, err)
	_, err = NewService(ServiceConfig{Pool: coordinator.Pool{TPSize: 8192, Groups: slices.Repeat([]coordinator.Group{{BlockSize: 16}}, 10)}})
	require.ErrorIs(t, err, ErrNotBuilt)
	_, err = NewService(ServiceConfig{Pool: coordinator.Pool{SchedulerBlockSize: 24}})
	require.ErrorIs(t, err, coordinator.ErrInvalidPool)
	_, err = NewService(ServiceConfig{Memory: index.Config{MaxBytes: 1}})
	require.ErrorIs(t, err, index.ErrConfig)
}

// A prompt may have any number of tokens, in process, at every revision.
func TestLookupPromptRoundsDown(t *testing.T) {
	hashes := netproto.NewHashes(lookuptest.Chain("a", 4, 32), 32)
	for _, tc := range []struct {
		revision coordinator.Revision
		tokens   uint64
		hit      uint32
	}{
		{coordinator.Revision20260620, 1000, 64},
		{coordinator.Revision20260620, 65, 64},
		{coordinator.Revision20260620, 64, 64},
		{coordinator.Revision20260620, 63, 48},
		{coordinator.Revision20260620, 15, 0},
		{coordinator.Revision20260620, 0, 0},
		{coordinator.Revision20260620, math.MaxUint64, 64},
		{coordinator.Revision20260817, 1000, 64},
		{coordinator.Revision20260817, 65, 64},
		{coordinator.Revision20260817, 64, 48}, // a token is left to compute
		{coordinator.Revision20260817, 15, 0},
	} {
		service, err := NewService(ServiceConfig{Pool: coordinator.Pool{Revision: tc.revision}})
		require.NoError(t, err)
		require.NoError(t, service.Store(Place{}, hashes.Bytes(), 32))
		hit, err := service.LookupPrompt(tc.tokens, hashes)
		require.NoError(t, err)
		require.Equal(t, tc.hit, hit, "%d tokens at %s", tc.tokens, tc.revision)
	}
}

// A prompt of a newer engine is refused with what to set.
func TestUnalignedPromptNamesTheRevision(t *testing.T) {
	service, err := NewService(ServiceConfig{})
	require.NoError(t, err)
	_, err = service.Lookup(1000, netproto.NewHashes(lookuptest.Chain("a", 4, 32), 32))
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	require.ErrorContains(t, err, "token length 1000 is not a multiple of 16, which pool.revision 2026-06-20 wants: set pool.revision to 2026-08-17 if the engine is vLLM 0.27 or newer")
}

func TestHugeNumTokens(t *testing.T) {
	service, err := NewService(blocks16)
	require.NoError(t, err)
	keys := lookuptest.Chain("a", 3, 32)
	require.NoError(t, service.Store(Place{}, keys, 32))
	for _, tokens := range []uint64{1 << 40, 1<<64 - 16} {
		hit, err := service.Lookup(tokens, netproto.NewHashes(keys, 32))
		require.NoError(t, err)
		require.EqualValues(t, 48, hit)
	}
	_, err = service.Lookup(1<<64-1, netproto.NewHashes(keys, 32))
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	require.True(t, strings.Contains(err.Error(), "multiple"))
}

// A hit that ends inside a chunk of a group with larger blocks needs the last hash of that
// chunk, which lies behind the first missing block of the group with smaller ones.
func TestHitInsideALargerChunk(t *testing.T) {
	service, err := NewService(ServiceConfig{Pool: coordinator.Pool{
		HashBlockSize: 4, SchedulerBlockSize: 48, Revision: coordinator.Revision20260817,
		Groups: []coordinator.Group{
			{Kind: coordinator.Mamba, BlockSize: 4, MambaCacheMode: "align", Variant: 3},
			{Kind: coordinator.FullAttention, BlockSize: 12, Variant: 1},
			{Kind: coordinator.FullAttention, BlockSize: 4},
			{Kind: coordinator.Mamba, BlockSize: 16, MambaCacheMode: "align", Variant: 3},
		},
	}})
	require.NoError(t, err)
	hashes := lookuptest.Chain("a", 2, 32)
	for group, held := range []int{0, 1, 0, 0} {
		require.NoError(t, service.Store(Place{Group: uint16(group)}, hashes[held*32:(held+1)*32], 32))
	}
	hit, err := service.Lookup(8, netproto.NewHashes(hashes, 32))
	require.NoError(t, err)
	require.EqualValues(t, 4, hit, "as vLLM 0.27.1 says")
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{64, 512, 8192, 131072} {
		b.Run(fmt.Sprintf("hashes=%d", n), func(b *testing.B) {
			service, err := NewService(blocks16)
			require.NoError(b, err)
			keys := lookuptest.Chain("a", n, 32)
			require.NoError(b, service.Store(Place{}, keys, 32))
			hashes := netproto.NewHashes(keys, 32)
			b.ReportAllocs()
			for b.Loop() {
				if hit, err := service.Lookup(uint64(16*n), hashes); err != nil || hit != uint32(16*n) {
					b.Fatal(hit, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/hash")
		})
	}
}
