package fleet

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

var gpu = events.Tier{Medium: "GPU"}

// randomHashes returns n hashes of 8 bytes.
func randomHashes(rng *rand.Rand, n int) coordinator.Hashes {
	return coordinator.NewHashes(randomBlob(rng, n), 8)
}

func randomBlob(rng *rand.Rand, n int) []byte {
	blob := make([]byte, 0, n*8)
	for range n {
		blob = append(blob, fmt.Sprintf("%08x", rng.Uint32())...)
	}
	for i := range blob {
		blob[i] ^= byte(rng.Uint32())
	}
	return blob
}

func slice(h coordinator.Hashes, from, to int) coordinator.Hashes {
	n := h.HashLen()
	return coordinator.NewHashes(h.Bytes()[from*n:to*n], n)
}

// storeAll stores hashes as an engine's events do.
func storeAll(tb testing.TB, h *Holder, hashes coordinator.Hashes) {
	var held [4096]bool
	for from := 0; from < hashes.Len(); from += len(held) {
		part := slice(hashes, from, min(from+len(held), hashes.Len()))
		require.NoError(tb, h.Store(&events.Blocks{Tier: gpu, Hashes: part, BlockSize: 16}, held[:part.Len()]))
	}
}

// newFilled returns a fleet of holders, of which number i holds the first (i+1)/holders of a chain, as far as shared
// says, each in steps of a prompt.
func newFilled(tb testing.TB, holders int, chain coordinator.Hashes) *Fleet {
	f, err := New(Config{BlockSize: 16})
	require.NoError(tb, err)
	for i := range holders {
		h, err := f.Add(ID{Engine: fmt.Sprintf("engine-%03d", i)})
		require.NoError(tb, err)
		h.SetStale(false)
		storeAll(tb, h, slice(chain, 0, chain.Len()*(i+1)/holders))
	}
	return f
}

// BenchmarkQuery asks about 8,192 blocks of a chain, of which 64 holders have prefixes of different lengths.
func BenchmarkQuery(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, blocks := range []int{64, 512, 8192} {
		for _, holders := range []int{1, 64, 4096} {
			chain := randomHashes(rng, blocks)
			f := newFilled(b, holders, chain)
			b.Run(fmt.Sprintf("blocks=%d/holders=%d", blocks, holders), func(b *testing.B) {
				var r Result
				b.ReportAllocs()
				for b.Loop() {
					if err := f.Lookup(&r, chain); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(blocks), "ns/block")
			})
		}
	}
}

// BenchmarkQueryParted is a query whose blocks change their set of holders often: each holder lacks some of the
// blocks behind the first half, in another medium than that of all.
func BenchmarkQueryParted(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 3))
	const blocks, holders = 8192, 64
	chain := randomHashes(rng, blocks)
	f := newFilled(b, 1, chain)
	for i := range holders {
		h, err := f.Add(ID{Engine: fmt.Sprint(i)})
		require.NoError(b, err)
		h.SetStale(false)
		storeAll(b, h, chain)
		for range 64 {
			at := rng.IntN(blocks - 8)
			var held [8]bool
			require.NoError(b, h.Store(&events.Blocks{Tier: events.Tier{Medium: "CPU"}, Hashes: slice(chain, at, at+8)}, held[:]))
		}
	}
	b.Logf("%+v", f.Stats())
	var r Result
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Lookup(&r, chain); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}

// BenchmarkQueryOfSeveralGroups asks about 8,192 blocks of 64 holders with full attention and a window.
func BenchmarkQueryOfSeveralGroups(b *testing.B) {
	const blocks, holders = 8192, 64
	chain := randomHashes(rand.New(rand.NewPCG(1, 3)), blocks)
	f, err := New(Config{BlockSize: 16, Groups: []coordinator.Group{full(16), window(16, 1024)}})
	require.NoError(b, err)
	for i := range holders {
		h, err := f.Add(ID{Engine: fmt.Sprint(i)})
		require.NoError(b, err)
		h.SetStale(false)
		part := slice(chain, 0, (i+1)*blocks/holders)
		for g := range 2 {
			held := make([]bool, part.Len())
			require.NoError(b, h.Store(&events.Blocks{Group: g, Tier: gpu, Hashes: part}, held))
		}
	}
	var r Result
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Lookup(&r, chain); err != nil || len(r.Holders) != holders {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}

// BenchmarkStore stores and removes prompts of 512 blocks by turns of 64 holders, in a fleet of 2 million blocks.
func BenchmarkStore(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 4))
	const prompt, prompts = 512, 4096
	all := randomHashes(rng, prompt*prompts)
	f, err := New(Config{BlockSize: 16})
	require.NoError(b, err)
	var list []*Holder
	for i := range 64 {
		h, err := f.Add(ID{Engine: fmt.Sprint(i)})
		require.NoError(b, err)
		h.SetStale(false)
		list = append(list, h)
	}
	var held [prompt]bool
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		blocks := events.Blocks{Tier: gpu, Hashes: slice(all, i%prompts*prompt, (i%prompts+1)*prompt), BlockSize: 16}
		h := list[i*7%64]
		if err := h.Store(&blocks, held[:]); err != nil {
			b.Fatal(err)
		}
		if i%4 == 3 {
			if err := h.Remove(&blocks); err != nil {
				b.Fatal(err)
			}
		}
		i++
	}
	b.ReportMetric(float64(b.N)*prompt*1.25/b.Elapsed().Seconds()/1e6, "Mblocks/s")
}

// BenchmarkMemory fills a fleet of 64 holders with 10 million blocks. Prompts begin with one of 1,000 prefixes of 64
// blocks, chosen by Zipf's law, have a second part that some share, and a tail of their own.
func BenchmarkMemory(b *testing.B) {
	if testing.Short() {
		b.Skip("10 million blocks")
	}
	const holders, total = 64, 10_000_000
	for b.Loop() {
		rng := rand.New(rand.NewPCG(1, 5))
		zipf := rand.NewZipf(rng, 1.2, 1, 999)
		f, err := New(Config{BlockSize: 16})
		require.NoError(b, err)
		var list []*Holder
		for i := range holders {
			h, err := f.Add(ID{Engine: fmt.Sprint(i)})
			require.NoError(b, err)
			list = append(list, h)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		blob := make([]byte, 0, 8*1024)
		for f.Stats().Blocks < total {
			for range 1000 {
				blob = blob[:0]
				prefix := rand.New(rand.NewPCG(zipf.Uint64(), 1))
				for range 64 {
					blob = appendHash(blob, prefix)
				}
				second := rand.New(rand.NewPCG(prefix.Uint64(), zipf.Uint64()))
				for range second.IntN(128) {
					blob = appendHash(blob, second)
				}
				for range rng.IntN(256) {
					blob = appendHash(blob, rng)
				}
				storeAll(b, list[rng.IntN(holders)], coordinator.NewHashes(blob, 8))
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		s := f.Stats()
		b.Logf("%+v heap %d", s, after.HeapAlloc-before.HeapAlloc)
		b.ReportMetric(float64(s.Bytes)/float64(s.Blocks), "B/block")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(s.Blocks), "heapB/block")
		b.ReportMetric(float64(s.Entries)/float64(s.Blocks), "holders/block")
		runtime.KeepAlive(f)
	}
}

func appendHash(blob []byte, rng *rand.Rand) []byte {
	h := rng.Uint64()
	for range 8 {
		blob = append(blob, byte(h))
		h >>= 8
	}
	return blob
}

// BenchmarkParallelQuery asks by several goroutines while one stores.
func BenchmarkParallelQuery(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 6))
	const blocks = 8192
	chain := randomHashes(rng, blocks)
	f := newFilled(b, 64, chain)
	var stop atomic.Bool
	done := make(chan struct{})
	h := f.Get(ID{Engine: "engine-000"})
	go func() {
		defer close(done)
		for !stop.Load() {
			blob := randomHashes(rng, 512)
			var held [512]bool
			_ = h.Store(&events.Blocks{Tier: gpu, Hashes: blob}, held[:])
			_ = h.Remove(&events.Blocks{Tier: gpu, Hashes: blob})
		}
	}()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var r Result
		for pb.Next() {
			if err := f.Lookup(&r, chain); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
	stop.Store(true)
	<-done
}
