package lookup

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

func TestMasksOfAService(t *testing.T) {
	for name, cfg := range map[string]ServiceConfig{"memory": {Pool: lookuptest.WindowPool}, "backend": {Pool: lookuptest.WindowPool, Backend: &lookuptest.KeyStore{}, Remote: patient}} {
		s, err := NewService(cfg)
		require.NoError(t, err)
		runs := func(chunks ...int64) (list []api.ChunkRun) {
			for _, c := range chunks {
				list = append(list, api.ChunkRun{Start: c, End: c + 1})
			}
			return list
		}
		masks, err := s.LoadMask(t.Context(), 192, 12)
		require.NoError(t, err)
		require.Equal(t, []api.GroupMask{
			{Group: 0, End: 3, Runs: []api.ChunkRun{{Start: 0, End: 3}}},
			{Group: api.NotStored},
			{Group: 1, End: 12, Runs: runs(11)},
		}, masks, name)
		masks, err = s.StoreMask(t.Context(), 192, 100, -7)
		require.NoError(t, err)
		require.Equal(t, []api.GroupMask{
			{Group: 0, First: 2, End: 3, All: true},
			{Group: api.NotStored, First: 7, End: 12, Runs: runs(7, 11)},
			{Group: 1, First: 7, End: 12, Runs: runs(7, 11)},
		}, masks, name)
		masks, err = s.LookupMask(t.Context(), 128)
		require.NoError(t, err)
		require.Equal(t, []api.GroupMask{
			{Group: 0, End: 2, All: true},
			{Group: api.NotStored, End: 8, Runs: runs(3, 7)},
			{Group: 1, End: 8, Runs: runs(3, 7)},
		}, masks, name)

		_, err = s.LoadMask(t.Context(), -1, 1)
		require.ErrorIs(t, err, ErrTokens)
		_, err = s.StoreMask(t.Context(), -64, 0, 0)
		require.ErrorIs(t, err, ErrTokens)
		_, err = s.StoreMask(t.Context(), 64, -1, 0)
		require.ErrorIs(t, err, ErrTokens)
		_, err = s.LookupMask(t.Context(), -64)
		require.ErrorIs(t, err, ErrTokens)
		_, err = s.LookupMask(t.Context(), 1)
		require.ErrorIs(t, err, coordinator.ErrPrecondition)
		_, err = s.StoreMask(t.Context(), 1, 0, 0)
		require.ErrorIs(t, err, coordinator.ErrPrecondition)
		_, err = s.Plan(t.Context(), -1, coordinator.Hashes{})
		require.ErrorIs(t, err, ErrTokens)

		masks, err = s.LookupMask(t.Context(), 64*api.MaxRuns/2)
		require.NoError(t, err)
		require.Equal(t, api.MaxRuns/2, len(masks[1].Runs))
		_, err = s.LookupMask(t.Context(), 64*(api.MaxRuns/2+1))
		require.ErrorIs(t, err, ErrTooManyRuns)
		require.ErrorContains(t, err, fmt.Sprint(api.MaxRuns))
		_, err = s.LookupMask(t.Context(), math.MaxInt64/64*64)
		require.ErrorIs(t, err, ErrTooManyRuns)
	}
}

// eaglePool has one sparse mask, and a store mask that is empty without a prompt.
var eaglePool = coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, SchedulerBlockSize: 64, RetentionInterval: new(0), Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 64},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17, IsEagleGroup: true},
}}

func TestMaskBounds(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: eaglePool})
	require.NoError(t, err)
	masks, err := s.LookupMask(t.Context(), 64*api.MaxRuns)
	require.NoError(t, err)
	require.Equal(t, api.MaxRuns, len(masks[1].Runs))
	_, err = s.LookupMask(t.Context(), 64*(api.MaxRuns+1))
	require.ErrorIs(t, err, ErrTooManyRuns)

	masks, err = s.StoreMask(t.Context(), 192, 0, -7)
	require.NoError(t, err)
	require.Empty(t, masks[1].Runs, "the prompt is not known")
	masks, err = s.StoreMask(t.Context(), 192, 0, 0)
	require.NoError(t, err)
	require.NotEmpty(t, masks[1].Runs)
}

func TestMaskAt(t *testing.T) {
	m := api.GroupMask{First: 2, End: 9, Runs: []api.ChunkRun{{Start: 3, End: 5}, {Start: 8, End: 9}}}
	all := api.GroupMask{First: 2, End: 9, All: true}
	for chunk := int64(-1); chunk < 12; chunk++ {
		require.Equal(t, slices.Contains([]int64{3, 4, 8}, chunk), m.At(chunk), chunk)
		require.Equal(t, 2 <= chunk && chunk < 9, all.At(chunk), chunk)
	}
}

// A plan is a lookup: over the memory index and over a backend it counts as one, and gives what a
// lookup and a load mask of its hit give.
func TestPlan(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	hashes := coordinator.NewHashes(chain, 32)
	for name, cfg := range map[string]ServiceConfig{"memory": {Pool: lookuptest.WindowPool}, "backend": {Pool: lookuptest.WindowPool, Backend: &lookuptest.KeyStore{}, Remote: patient}} {
		s, err := NewService(cfg)
		require.NoError(t, err)
		lookuptest.StorePrefix(t, s, chain, 8)
		plan, err := s.Plan(t.Context(), 192, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Stat().Lookups, name)
		hit, err := s.Lookup(t.Context(), 192, hashes)
		require.NoError(t, err)
		masks, err := s.LoadMask(t.Context(), hit.Tokens, 12)
		require.NoError(t, err)
		require.Equal(t, api.Plan{Hit: hit, Masks: masks}, plan, name)
		require.Len(t, hit.TailBoundaries, 2)

		for _, nothing := range []coordinator.Hashes{{}, coordinator.NewHashes(lookuptest.Chain("b", 12, 32), 32)} {
			plan, err = s.Plan(t.Context(), 192, nothing)
			require.NoError(t, err)
			require.Equal(t, api.Plan{Masks: []api.GroupMask{{Group: 0}, {Group: api.NotStored}, {Group: 1}}}, plan, name)
		}
		require.EqualValues(t, 4, s.Stat().Lookups, name)
	}
}

// A plan over a failing backend is a hit of 0, as a lookup.
func TestPlanOverAFailingBackend(t *testing.T) {
	store := &lookuptest.KeyStore{Before: func(context.Context, string, []string) error { return lookuptest.ErrStore }}
	s, err := NewService(ServiceConfig{Pool: lookuptest.WindowPool, Backend: store, Remote: patient})
	require.NoError(t, err)
	plan, err := s.Plan(t.Context(), 192, coordinator.NewHashes(lookuptest.Chain("a", 12, 32), 32))
	require.NoError(t, err)
	require.Equal(t, api.Plan{Masks: []api.GroupMask{{Group: 0}, {Group: api.NotStored}, {Group: 1}}}, plan)
	require.EqualValues(t, 1, s.Stat().BackendErrors)
}

// The rules' errors are those of a lookup, and no lookup is counted.
func TestPlanRefused(t *testing.T) {
	s, err := NewService(ServiceConfig{})
	require.NoError(t, err)
	_, err = s.Plan(t.Context(), 1000, coordinator.NewHashes(lookuptest.Chain("a", 4, 32), 32))
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	require.Zero(t, s.Stat().Lookups)
}

// A view with another retention interval shares index and counters, and differs in what is worth
// storing.
func TestWithRetentionInterval(t *testing.T) {
	pool := coordinator.Pool{HashBlockSize: 16, VLLM: coordinator.NewestRelease(), Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
	}}
	s, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(t, err)
	interval := 64
	view, err := s.WithRetentionInterval(&interval)
	require.NoError(t, err)
	all, err := s.StoreMask(t.Context(), 256, 0, -1)
	require.NoError(t, err)
	thinned, err := view.StoreMask(t.Context(), 256, 0, -1)
	require.NoError(t, err)
	require.NotEqual(t, all, thinned)

	hashes := coordinator.NewHashes(lookuptest.Chain("a", 16, 32), 32)
	want, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, hashes)
	require.NoError(t, err)
	require.NoError(t, s.Reset(t.Context()))
	stored, err := view.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, hashes)
	require.NoError(t, err)
	require.Less(t, stored[1], want[1])
	hit, err := s.Lookup(t.Context(), 256, hashes)
	require.NoError(t, err)
	require.Positive(t, hit.Tokens)
	require.Equal(t, s.Stat(), view.Stat())

	interval = -1
	_, err = s.WithRetentionInterval(&interval)
	require.ErrorIs(t, err, coordinator.ErrInvalidPool)
}
