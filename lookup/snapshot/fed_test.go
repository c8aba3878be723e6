package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// A pool that events fill is in no snapshot, and is loaded from none.
func TestFedPoolsAreLeftOut(t *testing.T) {
	before := filled(t, 50)
	all := snapshotOf(t, before)
	f, err := pool(t, before, "").BeginFeed("engine-0")
	require.NoError(t, err)
	require.NoError(t, f.Store(0, nil, netproto.NewHashes(chain(1, 9), hashLen)))
	info, err := Inspect(t.Context(), snapshotOf(t, before))
	require.NoError(t, err)
	var names []string
	for _, p := range info.Pools {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"a", "d"}, names)
	assert.EqualValues(t, 16, info.Entries)

	srv := newServer(t, ownPool, otherPool)
	_, err = pool(t, srv, "").BeginFeed("engine-0")
	require.NoError(t, err)
	_, st := load(t, srv, all)
	assert.Equal(t, `left out: pool "": the pool is filled by the events of engine-0: clients cannot change it`, st.LoadError)
	assert.EqualValues(t, 16, st.LoadedEntries)
	assert.Zero(t, hitBlocks(t, pool(t, srv, ""), chain(1, 50)))
}
