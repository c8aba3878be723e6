package server

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// TestConformanceSeededOverTheWire describes the pool of each recorded lookup with a start to a
// running server, and looks up, over a memory index with the case's content and over a store that
// has the content of all cases.
func TestConformanceSeededOverTheWire(t *testing.T) {
	releases := conformance.Releases
	if testing.Short() {
		releases = releases[len(releases)-1:]
	}
	store := &lookuptest.KeyStore{Keys: map[string]bool{}}
	for _, release := range releases {
		for _, c := range conformance.LoadWorkers(t, seededFile(release)) {
			maps.Copy(store.Keys, seededContent(t, c, seededPool(t, c, release)))
		}
	}
	shared := lookup.NewSharedBackend(store, patient, nil)
	var content atomic.Pointer[map[string]bool] // of the case whose pool is described
	memory := startPools(t, nil, Config{AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 16 << 20}})
		if err == nil {
			err = storeKeys(t, service, *content.Load())
		}
		return service, err
	}})
	remote := startPools(t, nil, Config{Backend: shared, AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
		return lookup.NewService(lookup.ServiceConfig{Pool: pool, Shared: shared})
	}})
	for _, release := range releases {
		name := seededFile(release)
		overMemory := conformance.NewReport(t, name+" over the wire")
		overBackend := conformance.NewReport(t, name+" over the wire and a backend")
		for _, c := range conformance.LoadWorkers(t, name) {
			pool := seededPool(t, c, release)
			keys := seededContent(t, c, pool)
			content.Store(&keys)
			overMemory.Add(c.ID, judgeSeeded(t, c, pool, memory))
			overBackend.Add(c.ID, judgeSeeded(t, c, pool, remote))
		}
		overMemory.Done()
		overBackend.Done()
	}
}

func seededFile(release string) string { return "releases/" + release + "/seeded_lookup.json" }

func seededPool(t *testing.T, c *conformance.WorkerCase, release string) (pool coordinator.Pool) {
	t.Helper()
	text, err := c.PoolJSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &pool))
	pool.VLLM = conformance.Newest(release)
	return pool
}

func seededContent(t *testing.T, c *conformance.WorkerCase, pool coordinator.Pool) map[string]bool {
	t.Helper()
	rules, err := coordinator.New(pool)
	require.NoError(t, err)
	prefixes := make([][]string, rules.NumGroups())
	for g := range prefixes {
		for _, r := range rules.Ranks(g) {
			prefixes[g] = append(prefixes[g], strings.TrimSuffix(rules.KeyPrefix(g, r), "@"))
		}
	}
	content, err := c.ContentOf(prefixes)
	require.NoError(t, err)
	return content
}

// storeKeys stores the blocks of keys.
func storeKeys(t *testing.T, service *lookup.Service, keys map[string]bool) error {
	rules := service.Coordinator()
	for g := range rules.NumGroups() {
		for _, r := range rules.Ranks(g) {
			prefix := rules.KeyPrefix(g, r)
			at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(r.TP), PPRank: uint16(r.PP), PCPRank: uint16(r.PCP)}
			for key := range keys {
				if text, ok := strings.CutPrefix(key, prefix); ok {
					hash, err := hex.DecodeString(text)
					require.NoError(t, err)
					if err := service.Store(t.Context(), at, coordinator.NewHashes(hash, len(hash))); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// judgeSeeded asks a server and compares its answer. A lookup_from with more hashes than its tokens
// have is refused. A plan, which may have more, then has the recorded answer.
func judgeSeeded(t *testing.T, c *conformance.WorkerCase, pool coordinator.Pool, server *Server) conformance.Verdict {
	conn, err := client.Dial(t.Context(), server.Addrs()[0], client.WithPool(c.ID, pool), client.WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	defer conn.Close()
	hashes := coordinator.NewHashes(c.BlobFromStart(pool.HashBlockSize), c.HashLen).From(c.StartTokens)
	hit, err := conn.Lookup(t.Context(), c.TokenLen, hashes)
	if int64(c.NumHashes) > c.TokenLen/int64(pool.HashBlockSize) {
		if !errors.Is(err, client.ErrBadRequest) {
			return conformance.Differs("%v, want a refusal of too many hashes", err)
		}
		var plan api.Plan
		plan, err = conn.Plan(t.Context(), c.TokenLen, hashes)
		hit = plan.Hit
	}
	var boundaries [][2]int64
	for _, b := range hit.TailBoundaries {
		boundaries = append(boundaries, [2]int64{int64(b.Group), b.Tokens})
	}
	switch want := &c.Expect; {
	case want.Error != "":
		if !errors.Is(err, client.ErrBadRequest) {
			return conformance.Differs("%v, want a refusal", err)
		}
	case err != nil:
		return conformance.Differs("%v", err)
	case hit.Tokens != want.HitLength || !slices.Equal(boundaries, want.TailKeyBoundaries):
		return conformance.Differs("%v, want %d, %v", hit, want.HitLength, want.TailKeyBoundaries)
	}
	return conformance.Verdict{}
}
