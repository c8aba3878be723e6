package fleet

import (
	"slices"
	"testing"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/stretchr/testify/require"
)

// snapshotWith makes a snapshot of any content, so that what reads content is reached.
func snapshotWith(content []byte) *parts.Reader {
	return partstest.Reader(partstest.Write(func(w *parts.Writer) { partstest.Raw(w, content) }))
}

// FuzzLoad loads any content. What is loaded is a fleet whose snapshot is loaded as the same.
func FuzzLoad(f *testing.F) {
	f.Add([]byte{0, 0, 0})
	f.Add(slices.Concat(headOf(savedA), savedSet, savedBlock))
	f.Fuzz(func(t *testing.T, content []byte) {
		fleet, err := New(Config{BlockSize: 16, MaxBytes: 1 << 20})
		require.NoError(t, err)
		if err := fleet.Load(snapshotWith(content)); err != nil {
			require.Zero(t, fleet.Stats().Holders)
			return
		}
		checkCore(t, fleet)
		again, err := New(Config{BlockSize: 16, MaxBytes: 2 << 20})
		require.NoError(t, err)
		require.NoError(t, again.Load(partstest.Reader(snapshotOf(fleet))))
		checkCore(t, again)
		require.Equal(t, fleet.Holders(), again.Holders())
		require.Equal(t, fleet.Stats().Blocks, again.Stats().Blocks)
		var r Result
		for _, h := range again.holders {
			h.SetStale(false)
			h.Clear()
		}
		require.NoError(t, again.Lookup(&r, randomHashes(newRand(1), 3)))
	})
}
