package lookup

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

func TestServiceRefusesPools(t *testing.T) {
	many := coordinator.Pool{Groups: slices.Repeat([]coordinator.Group{{BlockSize: 16}}, 65)}
	for _, store := range []backend.Backend{nil, &lookuptest.KeyStore{}} {
		_, err := NewService(ServiceConfig{Pool: many, Backend: store})
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "a pool of 65 groups; at most 64 are served")
	}
	_, err := NewService(ServiceConfig{Pool: coordinator.Pool{TPSize: 8192, Groups: slices.Repeat([]coordinator.Group{{BlockSize: 16}}, 10)}})
	require.ErrorIs(t, err, ErrUnsupported)
	_, err = NewService(ServiceConfig{Pool: coordinator.Pool{SchedulerBlockSize: 24}})
	require.ErrorIs(t, err, coordinator.ErrInvalidPool)
	_, err = NewService(ServiceConfig{Memory: index.Config{MaxBytes: 1}})
	require.ErrorIs(t, err, api.ErrConfig)
}

// A prompt may have any number of tokens, in process, at every release.
func TestLookupPromptRoundsDown(t *testing.T) {
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 4, 32), 32)
	for _, tc := range []struct {
		vllm   string
		tokens uint64
		hit    uint32
	}{
		{"", 1000, 64},
		{"", 65, 64},
		{"", 64, 64},
		{"", 63, 48},
		{"", 15, 0},
		{"", 0, 0},
		{"", math.MaxInt64, 64},
		{"0.28.0", 1000, 64},
		{"0.28.0", 65, 64},
		{"0.28.0", 64, 48}, // a token is left to compute
		{"0.28.0", 15, 0},
	} {
		service, err := NewService(ServiceConfig{Pool: coordinator.Pool{VLLM: tc.vllm}})
		require.NoError(t, err)
		require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(hashes.Bytes(), 32)))
		hit, err := service.LookupPrompt(t.Context(), int64(tc.tokens), hashes)
		require.NoError(t, err)
		require.EqualValues(t, tc.hit, hit.Tokens, "%d tokens at %q", tc.tokens, tc.vllm)
	}
}

// A prompt of a newer engine is refused with what to set.
func TestUnalignedPromptNamesTheRelease(t *testing.T) {
	service, err := NewService(ServiceConfig{})
	require.NoError(t, err)
	_, err = service.Lookup(t.Context(), 1000, coordinator.NewHashes(lookuptest.Chain("a", 4, 32), 32))
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	require.ErrorContains(t, err, "num_tokens 1000 is no multiple of 16, which vLLM up to 0.26.0 sends: set pool.vllm to the engine's release")
}

func TestHugeNumTokens(t *testing.T) {
	service, err := NewService(blocks16)
	require.NoError(t, err)
	keys := lookuptest.Chain("a", 3, 32)
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	for _, tokens := range []int64{1 << 40, 1<<63 - 16} {
		hit, err := service.Lookup(t.Context(), tokens, coordinator.NewHashes(keys, 32))
		require.NoError(t, err)
		require.EqualValues(t, 48, hit.Tokens)
	}
	_, err = service.Lookup(t.Context(), 1<<63-1, coordinator.NewHashes(keys, 32))
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	require.True(t, strings.Contains(err.Error(), "multiple"))
	_, err = service.Lookup(t.Context(), -16, coordinator.NewHashes(keys, 32))
	require.ErrorIs(t, err, ErrTokens)
	_, err = service.Explain(t.Context(), -16, coordinator.NewHashes(keys, 32))
	require.ErrorIs(t, err, ErrTokens)
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{64, 512, 8192, 131072} {
		b.Run(fmt.Sprintf("hashes=%d", n), func(b *testing.B) {
			service, err := NewService(blocks16)
			require.NoError(b, err)
			keys := lookuptest.Chain("a", n, 32)
			require.NoError(b, service.Store(b.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
			hashes := coordinator.NewHashes(keys, 32)
			b.ReportAllocs()
			for b.Loop() {
				if hit, err := service.Lookup(b.Context(), int64(16*n), hashes); err != nil || hit.Tokens != int64(16*n) {
					b.Fatal(hit.Tokens, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/hash")
		})
	}
}

// A negative number of tokens is refused, also where it is rounded.
func TestNegativeNumTokens(t *testing.T) {
	for _, release := range []string{"0.26.0", coordinator.NewestRelease()} {
		s, err := NewService(ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, VLLM: release}})
		require.NoError(t, err)
		for _, n := range []int64{-1, -16, -100, math.MinInt64} {
			_, err := s.LookupPrompt(t.Context(), n, coordinator.Hashes{})
			require.ErrorIs(t, err, ErrTokens, "%d tokens", n)
		}
	}
}

// LookupAnswer tells where blocks end, over the index as over a store.
func TestLookupAnswerHasTheEnding(t *testing.T) {
	chain := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
	for _, store := range []backend.Backend{nil, &lookuptest.KeyStore{}} {
		s, err := NewService(ServiceConfig{Pool: coordinator.Pool{Groups: []coordinator.Group{{BlockSize: 16}}}, Backend: store})
		require.NoError(t, err)
		require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(chain.Bytes()[:3*32], 32)))
		answer, err := s.LookupAnswer(t.Context(), 128, chain, LookupOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 48, answer.Hit.Tokens)
		require.Equal(t, 3, answer.Ending.Found)
		require.Equal(t, -1, answer.Ending.Group, "no group but those of full attention")
	}
}
