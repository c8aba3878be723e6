package lookup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

func TestExplainDoesNotTouch(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Memory: index.Config{MaxEntries: 20}})
	require.NoError(t, err)
	old, young := lookuptest.Chain("old", 10, 32), lookuptest.Chain("young", 10, 32)
	require.NoError(t, s.Store(t.Context(), GroupRank{}, netproto.NewHashes(old, 32)))
	require.NoError(t, s.Store(t.Context(), GroupRank{}, netproto.NewHashes(young, 32)))
	e, err := s.Explain(t.Context(), 160, netproto.NewHashes(old, 32))
	require.NoError(t, err)
	require.EqualValues(t, 160, e.HitTokens)
	require.NoError(t, s.Store(t.Context(), GroupRank{}, netproto.NewHashes(lookuptest.Chain("third", 10, 32), 32)))
	hit, err := s.Lookup(t.Context(), 160, netproto.NewHashes(old, 32))
	require.NoError(t, err)
	require.Zero(t, hit.Tokens, "what was only explained is evicted first")
	hit, err = s.Lookup(t.Context(), 160, netproto.NewHashes(young, 32))
	require.NoError(t, err)
	require.EqualValues(t, 160, hit.Tokens)
}

// TestLookupAfterExplain uses the same pooled query.
func TestLookupAfterExplain(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Memory: index.Config{MaxEntries: 20}})
	require.NoError(t, err)
	q := s.NewQuery()
	q.explain = true
	q.Release()
	require.False(t, q.explain)
	require.Nil(t, q.partly.Bits[0])
}
