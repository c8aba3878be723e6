package router

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parts"
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
	var held bytes.Buffer
	_, err = seed.Snapshot().WriteTo(&held)
	require.NoError(f, err)
	dumpText, model := `{"models":1,"sources":1}`, `{"tenant":"default","name":"llama","block_size":16}`
	source := `{"tenant":"default","model":"llama","instance":"a","rank":0,"name":"a"}`
	follower, err := events.NewFollower(events.Config{Endpoint: "tcp://127.0.0.1:1"}, h)
	require.NoError(f, err)
	var checkpoint []byte
	require.NoError(f, follower.Pause(f.Context(), func(c *events.Checkpoint) { checkpoint, err = c.AppendBinary(nil) }))
	require.NoError(f, err)
	f.Add([]byte(dumpText), []byte(model), held.Bytes(), []byte(source), checkpoint)
	f.Fuzz(func(t *testing.T, dump, model, held, source, checkpoint []byte) {
		var b bytes.Buffer
		w, err := newPartWriter(&b)
		require.NoError(t, err)
		for _, part := range []struct {
			kind       partKind
			info, data []byte
		}{{partDump, dump, nil}, {partModel, model, held}, {partSource, source, checkpoint}, {partEnd, nil, nil}} {
			require.NoError(t, w.flush())
			require.NoError(t, w.writePart(part.kind, append(make([]byte, parts.HeaderLen), part.info...)))
			_, err := w.Write(part.data)
			require.NoError(t, err)
		}
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
