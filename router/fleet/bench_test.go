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

// benchLookup asks about a chain.
func benchLookup(b *testing.B, f *Fleet, chain coordinator.Hashes) {
	var r Result
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Lookup(&r, chain); err != nil || len(r.Holders) == 0 {
			b.Fatal(err, r.Holders)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(chain.Len()), "ns/block")
}

// BenchmarkQuery asks about a chain of which holders have prefixes of different lengths.
func BenchmarkQuery(b *testing.B) {
	for _, blocks := range []int{64, 512, 8192} {
		for _, holders := range []int{1, 64, 4096} {
			chain := randomHashes(newRand(2), blocks)
			f := newFilled(b, holders, chain)
			b.Run(fmt.Sprintf("blocks=%d/holders=%d", blocks, holders), func(b *testing.B) { benchLookup(b, f, chain) })
		}
	}
}

// BenchmarkQueryParted is a query whose blocks change their set of holders often: each holder has some of the
// blocks in another medium, too.
func BenchmarkQueryParted(b *testing.B) {
	rng := newRand(3)
	const blocks = 8192
	chain := randomHashes(rng, blocks)
	f, list := newTestFleet(b, Config{}, 64)
	for _, h := range list {
		storeAll(b, h, chain)
		for range 64 {
			at := rng.IntN(blocks - 8)
			require.NoError(b, h.Store(&events.Blocks{Tier: events.Tier{Medium: "CPU"}, Hashes: slice(chain, at, at+8)}, nil))
		}
	}
	benchLookup(b, f, chain)
}

// BenchmarkQueryOfSeveralGroups asks about 8,192 blocks of 64 holders with full attention and a window.
func BenchmarkQueryOfSeveralGroups(b *testing.B) {
	const blocks, holders = 8192, 64
	chain := randomHashes(newRand(3), blocks)
	f, list := newTestFleet(b, Config{Groups: []coordinator.Group{full(16), window(16, 1024)}}, holders)
	for i, h := range list {
		for g := range 2 {
			require.NoError(b, h.Store(&events.Blocks{Group: g, Tier: gpu, Hashes: slice(chain, 0, (i+1)*blocks/holders)}, nil))
		}
	}
	benchLookup(b, f, chain)
}

// BenchmarkParallelQuery asks by several goroutines while one stores.
func BenchmarkParallelQuery(b *testing.B) {
	rng := newRand(6)
	chain := randomHashes(rng, 8192)
	f := newFilled(b, 64, chain)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for h := f.holders[0]; !stop.Load(); {
			blocks := events.Blocks{Tier: gpu, Hashes: randomHashes(rng, 512)}
			_ = h.Store(&blocks, nil)
			_ = h.Remove(&blocks)
		}
	}()
	b.RunParallel(func(pb *testing.PB) {
		var r Result
		for pb.Next() {
			if err := f.Lookup(&r, chain); err != nil {
				b.Error(err)
			}
		}
	})
	stop.Store(true)
	<-done
}

// BenchmarkStore stores and removes prompts of 512 blocks by turns of 64 holders, in a fleet of 2 million blocks.
func BenchmarkStore(b *testing.B) {
	const prompt, prompts = 512, 4096
	all := randomHashes(newRand(4), prompt*prompts)
	_, list := newTestFleet(b, Config{}, 64)
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

// BenchmarkMemory stores 10 million blocks in a fleet of 64 holders. Prompts begin with one of 1,000 prefixes of 64
// blocks, chosen by Zipf's law, have a second part that some share, and a tail of their own.
func BenchmarkMemory(b *testing.B) {
	if testing.Short() {
		b.Skip("10 million blocks")
	}
	const holders, total = 64, 10_000_000
	for b.Loop() {
		rng := newRand(5)
		zipf := rand.NewZipf(rng, 1.2, 1, 999)
		f, list := newTestFleet(b, Config{}, holders)
		before := heapBytes()
		for f.Stats().Blocks < total {
			for range 1000 {
				prefix := rand.New(rand.NewPCG(zipf.Uint64(), 1))
				blob := appendHashes(nil, prefix, 64)
				second := rand.New(rand.NewPCG(prefix.Uint64(), zipf.Uint64()))
				blob = appendHashes(blob, second, second.IntN(128))
				blob = appendHashes(blob, rng, rng.IntN(256))
				storeAll(b, list[rng.IntN(holders)], coordinator.NewHashes(blob, 8))
			}
		}
		heap, s := heapBytes()-before, f.Stats()
		b.ReportMetric(float64(s.Bytes)/float64(s.Blocks), "B/block")
		b.ReportMetric(float64(heap)/float64(s.Blocks), "heapB/block")
		b.ReportMetric(float64(s.Entries)/float64(s.Blocks), "holders/block")
		runtime.KeepAlive(f)
	}
}
