package feed

import (
	"encoding/hex"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// The pool of an engine of two groups answers every lookup as its rules do over the blocks that the engine caches.
func TestEngineFillsPool(t *testing.T) {
	for _, release := range []string{"0.24.0", "0.33.0"} {
		t.Run(release, func(t *testing.T) { followEngine(t, release) })
	}
}

func followEngine(t *testing.T, release string) {
	dir := t.TempDir()
	source := Source{Config: events.Config{
		Name: "engine-0", Connect: "ipc://" + filepath.Join(dir, "pub"), Replay: "ipc://" + filepath.Join(dir, "replay"), ExactCopies: true,
	}}
	engine := storetest.StartEngine(t, storetest.EngineConfig{
		Release: release, Endpoint: source.Connect, Replay: source.Replay, Buffer: 10_000, Blocks: 120, Window: 16, Least: 1, Seed: 25,
	})
	s := newService(t, coordinator.Pool{VLLM: release, HashBlockSize: 4, SchedulerBlockSize: 4, Groups: []coordinator.Group{
		{BlockSize: 4}, {Kind: coordinator.SlidingWindow, BlockSize: 4, SlidingWindow: 16},
	}})
	sources, err := NewSources(SourcesConfig{Service: func(string) *lookup.Service { return s }})
	require.NoError(t, err)
	defer sources.Close()
	require.NoError(t, sources.Add(source))

	rng := rand.New(rand.NewPCG(25, 3))
	cached := [2]map[string]bool{{}, {}}
	var all []string // that were ever cached
	next, hits := uint64(0), 0
	for range 12 {
		for _, step := range engine.Run(40, false) {
			next = step.Next
			for _, b := range step.Changes {
				hash, err := hex.DecodeString(b.Hash)
				require.NoError(t, err)
				if cached[b.Group][string(hash)] = b.Copies > 0; b.Copies > 0 {
					all = append(all, string(hash))
				}
			}
		}
		lookuptest.Eventually(t, "the pool has followed", func() bool {
			st := sources.Status()[0]
			return st.NextSeq == next && !st.Stale
		})
		for range 200 {
			var asked []byte
			n := 1 + rng.IntN(12)
			for range n {
				asked = append(asked, all[len(all)-1-rng.IntN(min(len(all), 60))]...)
			}
			hashes := netproto.NewHashes(asked, len(asked)/n)
			want, err := s.Coordinator().LookupBlocks(int64(n*4), hashes, func(g int, hash []byte) bool { return cached[g][string(hash)] })
			require.NoError(t, err)
			got, err := s.Lookup(t.Context(), int64(n*4), hashes)
			require.NoError(t, err)
			require.Equal(t, want.Tokens, got.Tokens)
			if got.Tokens > 0 {
				hits++
			}
		}
	}
	require.NotZero(t, hits)
}
