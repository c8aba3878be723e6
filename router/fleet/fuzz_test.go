package fleet

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// snapshotWith makes a snapshot of any content, so that what reads content is reached.
func snapshotWith(content []byte) []byte {
	var out bytes.Buffer
	w := newContentWriter(&out)
	for piece := range slices.Chunk(content, maxPayload) {
		w.buf = append(w.buf, piece...)
		w.flush(contentPart)
	}
	w.end()
	return out.Bytes()
}

// FuzzLoad loads any content. What is loaded is a fleet whose snapshot is loaded as the same.
func FuzzLoad(f *testing.F) {
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{16, 0, 1, 1, 16, 0, 0, 0, 1, 1, 'a', 2, 0, 1, 0, 3, 'G', 'P', 'U', 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0})
	f.Fuzz(func(t *testing.T, content []byte) {
		fleet, err := New(Config{BlockSize: 16, MaxBytes: 1 << 20})
		require.NoError(t, err)
		if err := fleet.Load(bytes.NewReader(snapshotWith(content))); err != nil {
			require.Zero(t, fleet.Stats().Holders)
			return
		}
		checkCore(t, fleet)
		again, err := New(Config{BlockSize: 16, MaxBytes: 2 << 20})
		require.NoError(t, err)
		require.NoError(t, again.Load(bytes.NewReader(snapshotOf(t, fleet))))
		checkCore(t, again)
		require.Equal(t, fleet.Holders(), again.Holders())
		require.Equal(t, fleet.Stats().Blocks, again.Stats().Blocks)
		var r Result
		for _, h := range again.byName {
			h.SetStale(false)
			h.Clear()
		}
		require.NoError(t, again.Lookup(&r, randomHashes(newRand(1), 3)))
	})
}

// FuzzLoadRaw loads any bytes.
func FuzzLoadRaw(f *testing.F) {
	f.Add(snapshotWith([]byte{16, 0, 0, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet, err := New(Config{BlockSize: 16, MaxBytes: 1 << 20})
		require.NoError(t, err)
		_ = fleet.Load(bytes.NewReader(data))
		checkCore(t, fleet)
	})
}
