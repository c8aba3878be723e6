package lookup

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

var everyRank = GroupRank{Group: netproto.AnyRank, TPRank: netproto.AnyRank, PPRank: netproto.AnyRank, PCPRank: netproto.AnyRank}

// While a pool is fed every other change is refused, and takes effect again when that ends.
func TestFeedRefusesClients(t *testing.T) {
	s, err := NewService(blocks16)
	require.NoError(t, err)
	keys := netproto.NewHashes(lookuptest.Chain("a", 4, 32), 32)
	var under Change
	require.NoError(t, s.BeginStore(&under, GroupRank{}, 0))
	f, err := s.BeginFeed("engine-0")
	require.NoError(t, err)
	assert.EqualError(t, s.CheckChange(), "the pool is filled by the events of engine-0: "+ErrFed.Error())
	prompt := api.PromptStore{NumTokens: 64}
	for name, change := range map[string]func() error{
		"store":        func() error { return s.Store(t.Context(), GroupRank{}, keys) },
		"under way":    func() error { return under.Add(keys.Bytes(), 32) },
		"evict":        func() error { return s.Evict(t.Context(), GroupRank{}, keys) },
		"reset":        func() error { return s.Reset(t.Context()) },
		"reset_rank":   func() error { return s.ResetRank(t.Context(), GroupRank{}) },
		"all ranks":    func() error { return s.ResetRank(t.Context(), everyRank) },
		"store_prompt": func() error { _, err := s.StorePrompt(t.Context(), prompt, keys); return err },
	} {
		err := change()
		require.ErrorIs(t, err, ErrFed, name)
		assert.EqualError(t, err, "the pool is filled by the events of engine-0: clients cannot change it", name)
	}
	assert.Zero(t, s.Stat().Entries)
	require.ErrorIs(t, f.Store(1, nil, keys), ErrGroupRank)
	require.NoError(t, f.Store(0, nil, keys))
	assert.EqualValues(t, 4, s.Stat().Entries)
	f.End()
	assert.Zero(t, s.Stat().Entries)
	require.NoError(t, under.Add(keys.Bytes(), 32))
	assert.EqualValues(t, 4, s.Stat().Entries)
}

// What a client stores while a feed begins is not in the pool afterwards.
func TestFeedBeginsAlone(t *testing.T) {
	for range 50 {
		s, err := NewService(ServiceConfig{Memory: index.Config{MaxBytes: 16 << 20}})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 2 {
			keys := netproto.NewHashes(lookuptest.Chain(string(rune('a'+i)), 200, 32), 32)
			wg.Go(func() {
				for s.Store(t.Context(), GroupRank{}, keys) == nil {
				}
			})
		}
		_, err = s.BeginFeed("engine-0")
		require.NoError(t, err)
		wg.Wait()
		require.Zero(t, s.Stat().Entries)
	}
}
