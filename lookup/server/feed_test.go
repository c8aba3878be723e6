package server

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// A pool that events fill is read-only for clients. Each refusal is counted, logged and listed as others are.
func TestFedPoolIsReadOnly(t *testing.T) {
	log := &logtest.Buffer{}
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Listen: []string{"tcp://127.0.0.1:0"}, Logger: slog.New(slog.NewJSONHandler(log, nil))})
	require.NoError(t, err)
	startTest(t, server)
	c := dialTest(t, server)
	keys := netproto.NewHashes(lookuptest.Chain("a", 4, 32), 32)
	require.NoError(t, c.Store(t.Context(), netproto.GroupRank{}, keys))

	f, err := service.BeginFeed("engine-0")
	require.NoError(t, err)
	require.NoError(t, f.Store(0, nil, keys))
	changes := []func() error{
		func() error { return c.Store(t.Context(), netproto.GroupRank{}, keys) },
		func() error {
			return c.StoreChain(t.Context(), netproto.GroupRank{}, 1, keys.At(0), netproto.NewHashes(keys.At(1), 32))
		},
		func() error { return c.Evict(t.Context(), netproto.GroupRank{}, keys) },
		func() error { return c.Reset(t.Context()) },
		func() error { return c.ResetRank(t.Context(), netproto.GroupRank{}) },
		func() error { _, err := c.StorePrompt(t.Context(), api.PromptStore{NumTokens: 64}, keys); return err },
	}
	for i, change := range changes {
		require.ErrorContains(t, change(), "the pool is filled by the events of engine-0: clients cannot change it", "%d", i)
	}
	hit, err := c.Lookup(t.Context(), 64, keys)
	require.NoError(t, err)
	require.EqualValues(t, 64, hit.Tokens)
	require.EqualValues(t, len(changes), statOf(t, c).Failed)
	require.NotEmpty(t, server.Refusals())
	require.Equal(t, "the pool is filled by the events of engine-0: clients cannot change it", server.Refusals()[0].Error)
	require.Contains(t, log.String(), `"msg":"request refused"`)

	f.End()
	require.NoError(t, c.Store(t.Context(), netproto.GroupRank{}, keys))
}
