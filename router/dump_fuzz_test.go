package router

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// FuzzLoadDump loads dumps whose parts are right and say anything: they are refused or loaded, and
// what no source fills is dropped again.
func FuzzLoadDump(f *testing.F) {
	seed, err := fleet.New(fleet.Config{BlockSize: 16})
	require.NoError(f, err)
	h, err := seed.Add(fleet.ID{Engine: "a"})
	require.NoError(f, err)
	require.NoError(f, h.Store(&events.Blocks{Group: 0, Tier: gpu, Hashes: hashesOf(1, 2), BlockSize: 16}, make([]bool, 2)))
	content := func(write func(*parts.Writer)) []byte {
		return partstest.Write(write)[len(partstest.Write(func(*parts.Writer) {})):]
	}
	dump, model := `{"models":1,"sources":1}`, `{"tenant":"default","name":"llama","block_size":16}`
	source := `{"model":"llama","instance_id":"a","endpoint":"tcp://127.0.0.1:1"}`
	follower, err := events.NewFollower(events.Config{Endpoint: "tcp://127.0.0.1:1"}, h)
	require.NoError(f, err)
	checkpoint, err := follower.Pause(f.Context())
	require.NoError(f, err)
	f.Add([]byte(dump), []byte(model), content(seed.Snapshot().Write), []byte(source), content(checkpoint.Write))
	f.Fuzz(func(t *testing.T, dump, model, held, source, checkpoint []byte) {
		var b bytes.Buffer
		w := parts.NewWriter(&b, dumpMagic, dumpFormat)
		w.Bytes(dump)
		w.Section()
		w.Bytes(model)
		partstest.Raw(w, held)
		w.Section()
		w.Bytes(source)
		partstest.Raw(w, checkpoint)
		require.NoError(t, w.End())
		limits := fleet.Config{MaxBytes: 1 << 20, MaxHolders: 8, MaxBlocks: 1000}
		s, err := New(Config{Fleet: limits})
		require.NoError(t, err)
		defer s.Close()
		if err := s.LoadDump(&b); err != nil {
			require.ErrorIs(t, err, ErrDump)
			require.Empty(t, s.Models())
		}
		s.DropLoaded()
		require.Empty(t, s.Models())
	})
}
