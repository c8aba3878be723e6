package lookup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
)

// TestConformanceSeeded judges the recorded lookups with a start: of the memory index, with the hashes in one piece
// and in several, and over a backend, in rounds and in one call.
func TestConformanceSeeded(t *testing.T) {
	for _, folder := range conformance.Releases {
		conformance.Run(t, "releases/"+folder+"/seeded_lookup.json", func(c *conformance.WorkerCase) conformance.Verdict {
			pool, err := poolOf(c, conformance.Newest(folder))
			if err != nil {
				return conformance.Differs("pool: %v", err)
			}
			return judgeSeeded(t, c, pool)
		})
	}
}

func judgeSeeded(t *testing.T, c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	memory, err := NewService(ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 16 << 20}})
	require.NoError(t, err)
	content, err := c.ContentOf(prefixesOf(memory.coord))
	require.NoError(t, err)
	for key := range content {
		at, hash, err := parseKey(key)
		require.NoError(t, err)
		require.NoError(t, memory.Store(t.Context(), at, coordinator.NewHashes(hash, len(hash))))
	}
	hashes := coordinator.NewHashes(c.BlobFromStart(memory.pool.HashBlockSize), c.HashLen).From(c.StartTokens)
	for _, piece := range []int{max(1, hashes.Len()), 1, 5} {
		hit, err := lookupPieces(memory, uint64(c.TokenLen), hashes, piece)
		if v := judgeSeededHit(c, hit, err); v != "" {
			return conformance.Differs("memory, %d hashes at a time: %s", piece, v)
		}
	}
	for _, strategy := range []Strategy{Gallop, SingleCall} {
		store := &lookuptest.KeyStore{Keys: content}
		remote, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience, Strategy: strategy}})
		require.NoError(t, err)
		hit, err := remote.Lookup(t.Context(), c.TokenLen, hashes)
		if v := judgeSeededHit(c, hit, err); v != "" {
			return conformance.Differs("backend, %s: %s", strategy, v)
		}
	}
	return conformance.Verdict{}
}

// judgeSeededHit returns how an answer differs, "" if it does not.
func judgeSeededHit(c *conformance.WorkerCase, hit coordinator.Hit, err error) string {
	want := &c.Expect
	switch {
	case classOf(err) != want.Error:
		return fmt.Sprintf("error %v, want %q", err, want.Error)
	case err == nil && (hit.Tokens != want.HitLength || !slices.Equal(pairsOf(hit.TailBoundaries), want.TailKeyBoundaries)):
		return fmt.Sprintf("%v, want %d, %v", hit, want.HitLength, want.TailKeyBoundaries)
	}
	return ""
}
