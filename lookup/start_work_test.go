package lookup

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// farStart is a start in tokens, behind 1,999,872 hashes. Blocks of every size below end there.
const farStart = 16 * 1_999_872

// startPools are pools of each attention kind.
func startPools() map[string]coordinator.Pool {
	full := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16}
	window := coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 65}
	mamba := coordinator.Group{Kind: coordinator.Mamba, BlockSize: 64}
	aligned, wide := mamba, full
	aligned.MambaCacheMode, wide.BlockSize = "align", 64
	pool := func(groups ...coordinator.Group) coordinator.Pool {
		return coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, SchedulerBlockSize: 256, Groups: groups}
	}
	eagle, fine := pool(full, window), pool(wide, aligned)
	eagle.UseEagle, fine.CacheHitAlignmentTokens = true, 16
	hybrid := pool(full)
	for variant := range 9 {
		window.Variant = variant
		hybrid.Groups = append(hybrid.Groups, window)
	}
	return map[string]coordinator.Pool{
		"full": pool(full), "window": pool(full, window), "eagle": eagle, "mamba": pool(full, mamba),
		"fine-grained": fine, "ten groups": hybrid,
	}
}

// hourLease is a store that states a lease of an hour.
type hourLease struct{ *lookuptest.KeyStore }

func (hourLease) Lease() backend.Lease { return backend.Lease{Duration: time.Hour, Stated: time.Hour} }

// storeAll stores whole blocks of hashes in every group.
func storeAll(t *testing.T, s *Service, hashes coordinator.Hashes) {
	t.Helper()
	for g := range s.coord.NumGroups() {
		var keys []byte
		for i := range hashes.Len() / s.coord.KeyStride(g) {
			keys = append(keys, hashes.At(coordinator.KeyIndex(i, s.coord.KeyStride(g)))...)
		}
		require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{Group: uint16(g)}, coordinator.NewHashes(keys, 32)))
	}
}

// allocated returns what a call allocates, apart from what happens once in many calls. It takes one processor, as
// testing.AllocsPerRun does: each processor fills pools of its own.
func allocated(call func()) (allocs, bytes float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const runs = 20
	call()
	bytes = math.Inf(1)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			call()
		}
		runtime.ReadMemStats(&after)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/runs)
	}
	return testing.AllocsPerRun(runs, call), bytes
}

// heldBy returns the bytes that a lookup holds before its end.
func heldBy(t *testing.T, s *Service, hashes coordinator.Hashes) int {
	q := s.memory.NewQuery()
	defer q.Release()
	require.NoError(t, q.addAll(hashes.Start()+16*int64(hashes.Len()), hashes))
	return q.Held()
}

// A lookup from far on takes the memory of one from token 0 of as many hashes: over memory, over a store, of
// blocks that were found a moment ago, and for explanations.
func TestStartTakesNoMemory(t *testing.T) {
	if bufpool.Debug || lookuptest.Race {
		t.Skip("the traps of debug builds and the race detector allocate")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would empty pools
	const n = 64
	hashes := coordinator.NewHashes(lookuptest.Chain("a", n, 32), 32)
	for name, pool := range startPools() {
		memory, err := NewService(ServiceConfig{Pool: pool})
		require.NoError(t, err)
		remote, err := NewService(ServiceConfig{Pool: pool, Backend: &lookuptest.KeyStore{}, Remote: patient})
		require.NoError(t, err)
		remembering, err := NewService(ServiceConfig{Pool: pool, Backend: hourLease{&lookuptest.KeyStore{}}, Remote: patient})
		require.NoError(t, err)
		for _, s := range []*Service{memory, remote, remembering} {
			storeAll(t, s, hashes)
		}
		ways := map[string]func(tokens int64, hashes coordinator.Hashes){}
		for on, s := range map[string]*Service{"memory": memory, "store": remote} {
			ways["lookup, "+on] = func(tokens int64, hashes coordinator.Hashes) {
				if hit, err := s.Lookup(t.Context(), tokens, hashes); err != nil || hit.Tokens <= hashes.Start() {
					t.Error(hit, err)
				}
			}
			ways["explain, "+on] = func(tokens int64, hashes coordinator.Hashes) {
				_, err := s.Explain(t.Context(), tokens, hashes)
				require.NoError(t, err)
			}
		}
		ways["lookup, remembering"] = func(tokens int64, hashes coordinator.Hashes) {
			if _, ok := remembering.Backend().LookupRemembered(tokens, hashes); !ok { // the first time
				_, err := remembering.Lookup(t.Context(), tokens, hashes)
				require.NoError(t, err)
				_, ok = remembering.Backend().LookupRemembered(tokens, hashes)
				require.True(t, ok)
			}
		}
		assert.Equal(t, heldBy(t, memory, hashes), heldBy(t, memory, hashes.From(farStart)), name)
		for way, ask := range ways {
			var allocs, bytes [2]float64
			for far, start := range []int64{0, farStart} {
				allocs[far], bytes[far] = allocated(func() { ask(start+16*n, hashes.From(start)) })
			}
			t.Logf("%-13s %-16s %v, %v bytes", name, way, allocs, bytes)
			assert.Equal(t, allocs[0], allocs[1], "%s, %s", name, way)
			assert.InEpsilon(t, bytes[0]+256, bytes[1]+256, 0.1, "%s, %s", name, way)
		}
	}
}

// Lookups from far on that wait for a store hold what their hashes take.
func TestStartsOverASlowStore(t *testing.T) {
	const callers = 32
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "exists", "")
	s, err := NewService(ServiceConfig{Pool: startPools()["ten groups"], Backend: store, Remote: patient})
	require.NoError(t, err)
	before := lookuptest.HeapBytes()
	var running sync.WaitGroup
	for i := range callers {
		hashes := coordinator.NewHashes(lookuptest.Chain(fmt.Sprint(i), 16, 32), 32)
		running.Go(func() {
			hit, err := s.Lookup(t.Context(), farStart+16*16, hashes.From(farStart))
			assert.NoError(t, err)
			assert.EqualValues(t, farStart, hit.Tokens)
		})
	}
	lookuptest.Eventually(t, "all wait for the store", func() bool { return gate.Held.Load() == callers })
	held := lookuptest.HeapBytes() - before
	close(gate.Open)
	running.Wait()
	require.Less(t, held, int64(4<<20))
}
