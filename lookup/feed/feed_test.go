package feed

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

var (
	gpu     = events.Tier{Medium: "GPU"}
	storage = events.Tier{Medium: "STORAGE"}
)

// newService returns a service of a pool over memory.
func newService(t testing.TB, pool coordinator.Pool) *lookup.Service {
	t.Helper()
	s, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 64 << 20}})
	require.NoError(t, err)
	return s
}

// live returns a holder that is no longer stale.
func live(t testing.TB, s *lookup.Service, cfg Config) *Holder {
	t.Helper()
	h, err := New(s, cfg)
	require.NoError(t, err)
	h.SetStale(false)
	return h
}

// chain returns n hashes of 32 bytes.
func chain(name uint64, n int) netproto.Hashes {
	return netproto.NewHashes(lookuptest.Chain(fmt.Sprint(name), n, 32), 32)
}

func store(t testing.TB, h *Holder, group int, tier events.Tier, hashes netproto.Hashes) {
	t.Helper()
	require.NoError(t, h.Store(&events.Blocks{Group: group, Tier: tier, Hashes: hashes, BlockSize: 16}, make([]bool, hashes.Len())))
}

func remove(t testing.TB, h *Holder, group int, tier events.Tier, hashes netproto.Hashes) {
	t.Helper()
	require.NoError(t, h.Remove(&events.Blocks{Group: group, Tier: tier, Hashes: hashes}))
}

// hit returns how many leading blocks of 16 tokens a lookup finds.
func hit(t testing.TB, s *lookup.Service, hashes netproto.Hashes) int {
	t.Helper()
	got, err := s.LookupPrompt(t.Context(), int64(hashes.Len()+1)*16, hashes)
	require.NoError(t, err)
	return int(got.Tokens) / 16
}

// part returns the hashes from number i to before number j.
func part(hashes netproto.Hashes, i, j int) netproto.Hashes {
	n := hashes.HashLen()
	return netproto.NewHashes(hashes.Bytes()[i*n:j*n], n)
}

// All ranks of a group hold what its engine stores, and nothing while the source is stale.
func TestHolder(t *testing.T) {
	s := newService(t, coordinator.Pool{TPSize: 4, NumKVHead: 4, PPSize: 2})
	a := chain(1, 20)
	require.NoError(t, s.Store(t.Context(), lookup.GroupRank{}, a))
	h, err := New(s, Config{Source: "engine-0"})
	require.NoError(t, err)
	assert.Zero(t, s.Stat().Entries, "what clients stored is gone")
	store(t, h, 0, gpu, a)
	assert.Zero(t, hit(t, s, a), "a source begins stale")
	h.SetStale(false)
	assert.Equal(t, 20, hit(t, s, a))
	remove(t, h, 0, gpu, part(a, 12, 13))
	assert.Equal(t, 12, hit(t, s, a))
	h.SetStale(true)
	assert.Zero(t, hit(t, s, a))
	assert.Zero(t, s.Stat().Entries)
	remove(t, h, 0, gpu, part(a, 5, 6))
	h.SetStale(false)
	h.SetStale(false)
	assert.Equal(t, 5, hit(t, s, a), "what was removed while it was stale")
	assert.Equal(t, 18, h.Len())
	h.Clear()
	assert.Zero(t, hit(t, s, a))
	assert.Zero(t, h.Len())
	store(t, h, events.NoGroup, events.Tier{}, a)
	assert.Equal(t, 20, hit(t, s, a))
	h.Close()
	assert.Zero(t, s.Stat().Entries)
	assert.NoError(t, s.CheckChange())
	require.NoError(t, s.Store(t.Context(), lookup.GroupRank{}, a))
}

// A block is in the index while it is in a medium that is indexed.
func TestHolderMedia(t *testing.T) {
	s := newService(t, coordinator.Pool{})
	h := live(t, s, Config{Media: []string{"GPU", "CPU"}})
	a := chain(1, 4)
	cpu, other := events.Tier{Medium: "CPU"}, events.Tier{Medium: "GPU", Locality: "REMOTE"}
	store(t, h, 0, storage, a)
	store(t, h, 0, other, a)
	assert.Zero(t, hit(t, s, a))
	store(t, h, 0, gpu, a)
	store(t, h, 0, cpu, a)
	assert.Equal(t, 4, hit(t, s, a))
	remove(t, h, 0, gpu, part(a, 1, 4))
	assert.Equal(t, 4, hit(t, s, a), "the CPU has them")
	remove(t, h, 0, cpu, part(a, 2, 3))
	assert.Equal(t, 2, hit(t, s, a))
	remove(t, h, 0, storage, part(a, 0, 1))
	assert.Equal(t, 2, hit(t, s, a))
	remove(t, h, events.NoGroup, events.Tier{}, part(a, 0, 1))
	assert.Zero(t, hit(t, s, a))
	h.SetStale(true)
	h.SetStale(false)
	assert.Zero(t, hit(t, s, a))
	assert.Equal(t, 1, hit(t, s, part(a, 1, 2)))
}

// Groups of events are those of the pool. A lookup needs all of them.
func TestHolderGroups(t *testing.T) {
	s := newService(t, coordinator.Pool{VLLM: "0.33.0", Groups: []coordinator.Group{{BlockSize: 16}, {Kind: coordinator.MLAAttention, BlockSize: 16}}})
	h := live(t, s, Config{})
	a := chain(1, 4)
	store(t, h, 0, gpu, a)
	assert.Zero(t, hit(t, s, a))
	store(t, h, 1, gpu, a)
	assert.Equal(t, 4, hit(t, s, a))
	remove(t, h, 1, gpu, part(a, 3, 4))
	assert.Equal(t, 3, hit(t, s, a))
	remove(t, h, events.NoGroup, gpu, part(a, 2, 3))
	assert.Equal(t, 2, hit(t, s, a))
	assert.Equal(t, 5, h.Len())

	// A block of which the engine did not say the group goes with a removal from any.
	b := chain(2, 2)
	store(t, h, events.NoGroup, gpu, b)
	store(t, h, 1, gpu, b)
	assert.Equal(t, 2, hit(t, s, b))
	remove(t, h, 1, gpu, part(b, 1, 2))
	store(t, h, 1, gpu, b)
	assert.Equal(t, 1, hit(t, s, b))
}

func TestHolderErrors(t *testing.T) {
	s := newService(t, coordinator.Pool{HashLen: 32})
	h := live(t, s, Config{Source: "engine-0"})
	held := make([]bool, 4)
	short := netproto.NewHashes(make([]byte, 32), 8)
	err := h.Store(&events.Blocks{Tier: gpu, Hashes: short}, held)
	require.ErrorIs(t, err, ErrHashLen)
	assert.EqualError(t, err, "feed: hashes of another length than the pool's: 8 bytes, the pool's have 32; start vLLM with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 for whole digests, or set hash_len: 8")
	require.ErrorIs(t, h.Store(&events.Blocks{Group: 1, Tier: gpu, Hashes: chain(1, 4)}, held), ErrGroup)
	require.NoError(t, h.Remove(&events.Blocks{Group: 9, Tier: gpu, Hashes: chain(1, 4)}))
	require.NoError(t, h.Remove(&events.Blocks{Tier: gpu, Hashes: short}))
	for i := range maxTiers {
		store(t, h, 0, events.Tier{Medium: "GPU", Ownership: fmt.Sprint(i)}, chain(1, 1))
	}
	require.ErrorIs(t, h.Store(&events.Blocks{Tier: gpu, Hashes: chain(1, 4)}, held), ErrTiers)
	_, err = New(s, Config{Source: "engine-1"})
	require.ErrorIs(t, err, lookup.ErrFed)
	_, err = New(newRemote(t), Config{})
	require.ErrorIs(t, err, lookup.ErrUnsupported)
}

// A pool of other block sizes than the engine's would answer with hits that are too long, or too short.
func TestHolderBlockSize(t *testing.T) {
	s := newService(t, coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, Groups: []coordinator.Group{
		{BlockSize: 16}, {Kind: coordinator.MLAAttention, BlockSize: 64}}})
	h := live(t, s, Config{Media: []string{"GPU", "CPU"}})
	a := chain(1, 4)
	store := func(group int, medium string, size int64) error {
		return h.Store(&events.Blocks{Group: group, Tier: events.Tier{Medium: medium}, Hashes: a, BlockSize: size}, make([]bool, a.Len()))
	}
	assert.EqualError(t, store(0, "GPU", 8), "feed: blocks of another size than the pool's; describe hash_block_size and the groups of the engine: "+
		"8 tokens, which is no multiple of hash_block_size 16")
	assert.EqualError(t, store(0, "GPU", 32), "feed: blocks of another size than the pool's; describe hash_block_size and the groups of the engine: "+
		"32 tokens, but group 0 has blocks of 16")
	require.ErrorIs(t, store(events.NoGroup, "GPU", 32), ErrBlockSize)
	require.ErrorIs(t, store(1, "GPU", 128), ErrBlockSize)
	require.ErrorIs(t, store(1, "CPU", 24), ErrBlockSize)
	assert.Zero(t, hit(t, s, a))
	require.NoError(t, store(0, "GPU", 16))
	require.ErrorIs(t, store(1, "GPU", 48), ErrBlockSize)
	part := &events.Blocks{Group: 1, Tier: gpu, Hashes: chain(1, 1), BlockSize: 48}
	require.NoError(t, h.Store(part, make([]bool, 1))) // a part of a block
	require.NoError(t, store(1, "GPU", 0))             // not said
	require.NoError(t, store(1, "CPU", 128))
	require.NoError(t, store(0, "STORAGE", 8)) // not indexed
}

// A pool whose groups are not those of the engine would look for blocks that the engine does not need.
func TestHolderKind(t *testing.T) {
	s := newService(t, coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, Groups: []coordinator.Group{
		{BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
		{Kind: coordinator.ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: 64},
		{Kind: coordinator.Mamba, BlockSize: 16, MambaCacheMode: "align"}}})
	h := live(t, s, Config{})
	a := chain(1, 4)
	for _, c := range []struct {
		group  int
		kind   string
		window int64
		want   string
	}{
		{0, "full_attention", -1, ""},
		{0, "mla_attention", -1, ""},
		{0, "", -1, ""},
		{0, "unknown", -1, ""},
		{0, "sliding_window", 64, "group 0 is sliding_window, but full_attention in the pool"},
		{1, "full_attention", -1, "group 1 is full_attention, but sliding_window in the pool"},
		{1, "sliding_window", 64, ""},
		{1, "sliding_window_mla", 64, ""},
		{1, "sliding_window", 32, "group 1 has a window of 32 tokens, but one of 64 in the pool"},
		{1, "mamba", -1, "group 1 is mamba, but sliding_window in the pool"},
		{2, "chunked_local_attention", -1, ""},
		{2, "sliding_window", 64, "group 2 is sliding_window, but chunked_local_attention in the pool"},
		{3, "mamba", -1, ""},
		{3, "chunked_local_attention", -1, "group 3 is chunked_local_attention, but mamba in the pool"},
	} {
		err := h.Store(&events.Blocks{Group: c.group, Tier: gpu, Hashes: a, BlockSize: 16, SpecKind: c.kind, SlidingWindow: c.window}, make([]bool, a.Len()))
		if c.want == "" {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorIs(t, err, ErrKind)
		assert.ErrorContains(t, err, c.want)
	}
}

// newRemote returns a service over a backend.
func newRemote(t *testing.T) *lookup.Service {
	s, err := lookup.NewService(lookup.ServiceConfig{Backend: &lookuptest.KeyStore{}})
	require.NoError(t, err)
	return s
}

// The engine may have another hash function than clients had before, or before it was started again.
func TestHolderOfAnotherHashLen(t *testing.T) {
	s := newService(t, coordinator.Pool{})
	short := netproto.NewHashes(chain(1, 4).Bytes(), 16)
	require.NoError(t, s.Store(t.Context(), lookup.GroupRank{}, short))
	h, err := New(s, Config{})
	require.NoError(t, err)
	store(t, h, 0, gpu, chain(1, 4))
	h.SetStale(false)
	assert.Equal(t, 4, hit(t, s, chain(1, 4)))
	remove(t, h, 0, gpu, short)
	assert.Equal(t, 4, hit(t, s, chain(1, 4)))
	h.Clear()
	store(t, h, 0, gpu, short)
	assert.Equal(t, 8, hit(t, s, short))
}

// An index that is too small holds less than the engine, the newest blocks.
func TestHolderOfSmallIndex(t *testing.T) {
	s, err := lookup.NewService(lookup.ServiceConfig{Memory: index.Config{MaxBytes: 64 << 20, MaxEntries: 8192}})
	require.NoError(t, err)
	h := live(t, s, Config{})
	for i := range uint64(200) {
		store(t, h, 0, gpu, chain(i, 100))
	}
	assert.Equal(t, 20000, h.Len())
	assert.LessOrEqual(t, s.Stat().Entries, int64(8192))
	assert.Equal(t, 100, hit(t, s, chain(199, 100)))
	remove(t, h, 0, gpu, chain(199, 100))
	assert.Zero(t, hit(t, s, chain(199, 100)))
	h.SetStale(true)
	h.SetStale(false)
	assert.Equal(t, 100, hit(t, s, chain(198, 100)))
}

// After any events the pool answers as a model of the engine does.
func TestHolderRandom(t *testing.T) {
	s := newService(t, coordinator.Pool{TPSize: 2, NumKVHead: 2})
	h := live(t, s, Config{Media: []string{"GPU", "CPU"}})
	rng := rand.New(rand.NewPCG(25, 1))
	tiers := []events.Tier{gpu, {Medium: "CPU"}, storage, {Medium: "GPU", Locality: "REMOTE"}, {Medium: "GPU", Locality: "LOCAL"}}
	var chains []netproto.Hashes
	for i := range uint64(8) {
		chains = append(chains, chain(i, 30))
	}
	type key struct {
		hash string
		tier int
	}
	model, stale := map[key]bool{}, false
	for range 4000 {
		c := chains[rng.IntN(len(chains))]
		i := rng.IntN(c.Len())
		b := part(c, i, i+1+rng.IntN(c.Len()-i))
		tier := rng.IntN(len(tiers))
		switch rng.IntN(20) {
		case 0:
			h.Clear()
			clear(model)
		case 1, 2:
			stale = !stale
			h.SetStale(stale)
		case 3, 4, 5, 6, 7, 8:
			remove(t, h, 0, tiers[tier], b)
			for _, hash := range b.All() {
				delete(model, key{string(hash), tier})
				if tiers[tier].Locality == "" { // matches every locality
					for other, of := range tiers {
						if of.Medium == tiers[tier].Medium {
							delete(model, key{string(hash), other})
						}
					}
				} else {
					for other, of := range tiers {
						if of.Medium == tiers[tier].Medium && of.Locality == "" {
							delete(model, key{string(hash), other})
						}
					}
				}
			}
		default:
			store(t, h, 0, tiers[tier], b)
			for _, hash := range b.All() {
				model[key{string(hash), tier}] = true
			}
		}
		asked := chains[rng.IntN(len(chains))]
		want := 0
		for _, hash := range asked.All() {
			if stale || !model[key{string(hash), 0}] && !model[key{string(hash), 1}] && !model[key{string(hash), 4}] {
				break
			}
			want++
		}
		require.Equal(t, want, hit(t, s, asked))
	}
}

// While events come and go lookups find nothing that was never held together.
func TestHolderConcurrently(t *testing.T) {
	s := newService(t, coordinator.Pool{})
	h := live(t, s, Config{})
	never, always := chain(1, 50), chain(2, 50)
	store(t, h, 0, gpu, part(never, 0, 25))
	store(t, h, 0, gpu, always)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				assert.LessOrEqual(t, hit(t, s, never), 25)
				assert.ErrorIs(t, s.Store(t.Context(), lookup.GroupRank{}, never), lookup.ErrFed)
			}
		})
	}
	for i := range 300 {
		h.SetStale(i%2 == 0)
		store(t, h, 0, gpu, chain(uint64(i+10), 20))
		remove(t, h, 0, gpu, chain(uint64(i+10), 20))
	}
	close(done)
	wg.Wait()
	assert.Equal(t, 50, hit(t, s, always))
	assert.Equal(t, 75, h.Len())
}

// BenchmarkHolder applies events of 64 blocks, half of them removals.
func BenchmarkHolder(b *testing.B) {
	for _, hashLen := range []int{8, 32} {
		b.Run(fmt.Sprintf("bytes=%d", hashLen), func(b *testing.B) {
			s, err := lookup.NewService(lookup.ServiceConfig{Memory: index.Config{MaxBytes: 256 << 20}})
			require.NoError(b, err)
			h := live(b, s, Config{})
			const blocks, kept = 64, 4096
			keys, held := make([]byte, kept*blocks*hashLen), make([]bool, blocks)
			rng := rand.New(rand.NewPCG(25, 2))
			for i := 0; i < len(keys); i += 8 {
				binary.LittleEndian.PutUint64(keys[i:], rng.Uint64())
			}
			event := func(i int) *events.Blocks {
				at := i % kept * blocks * hashLen
				return &events.Blocks{Tier: gpu, Hashes: netproto.NewHashes(keys[at:at+blocks*hashLen], hashLen)}
			}
			for i := 0; b.Loop(); i++ {
				if i >= kept/2 {
					_ = h.Remove(event(i - kept/2))
				}
				_ = h.Store(event(i), held)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks), "ns/block")
		})
	}
}
