package fleet

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
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

// promptLoad is prompts of 64 holders: a system prompt, an eighth; a prefix that goes on from there, three eighths; and a
// tail of each its own.
type promptLoad struct {
	rng     *rand.Rand
	blocks  int // of a prompt
	fleet   *Fleet
	holders []*Holder
	stored  int
	took    time.Duration // by the stores
}

// piece is a part of a prompt that a holder stores.
type piece struct {
	holder *Holder
	hashes coordinator.Hashes
	from   int
	oneBy  int // the last blocks, which come one by one
}

// storeNext stores the next blocks, at most 256, and returns whether there are further ones.
func (p *piece) storeNext(b *testing.B, l *promptLoad) bool {
	n := 1
	if left := p.hashes.Len() - p.from; left > p.oneBy {
		n = min(left-p.oneBy, 256)
	}
	blocks := events.Blocks{Tier: gpu, Hashes: slice(p.hashes, p.from, p.from+n), BlockSize: 16}
	if p.from > 0 {
		blocks.Parent = p.hashes.At(p.from - 1)
	}
	var held [256]bool
	began := time.Now()
	require.NoError(b, p.holder.Store(&blocks, held[:n]))
	l.took += time.Since(began)
	l.stored += n
	p.from += n
	return p.from < p.hashes.Len()
}

// fill stores prompts, 64 at a time in pieces that alternate at random, until there are 1 M blocks, and then two that all
// holders have. It returns the whole prompts.
func (l *promptLoad) fill(b *testing.B) (prompts []coordinator.Hashes) {
	l.fleet, l.holders = newTestFleet(b, Config{}, 64)
	prefixes := 1_000_000 / l.blocks / 4
	zipf := rand.NewZipf(l.rng, 1.1, 1, uint64(prefixes-1))
	var jobs []*piece
	for {
		for len(jobs) < 64 && l.fleet.Stats().Blocks < 1_000_000 {
			prefix := zipf.Uint64()
			blob := appendHashes(nil, newRand(1000+prefix%4), l.blocks/8)
			blob = appendHashes(blob, newRand(2000+prefix), l.blocks/8*3)
			blob = appendHashes(blob, l.rng, l.blocks/2)
			prompt := coordinator.NewHashes(blob, 8)
			prompts = append(prompts, prompt)
			jobs = append(jobs, &piece{l.holders[(prefix+l.rng.Uint64N(4))%64], prompt, 0, 32})
		}
		if len(jobs) == 0 {
			break
		}
		if i := l.rng.IntN(len(jobs)); !jobs[i].storeNext(b, l) {
			jobs[i], jobs = jobs[len(jobs)-1], jobs[:len(jobs)-1]
		}
	}
	for range 2 {
		prompts = append(prompts, randomHashes(l.rng, l.blocks))
		for _, h := range l.holders {
			storeAll(b, h, prompts[len(prompts)-1])
		}
	}
	return prompts
}

// BenchmarkPrompts asks about prompts of which some holder has all, nobody has the blocks from some place on, or all
// holders have all.
func BenchmarkPrompts(b *testing.B) {
	for _, blocks := range []int{512, 8192} {
		l := promptLoad{rng: newRand(2), blocks: blocks}
		prompts := l.fill(b)
		stats := l.fleet.Stats()
		queries := map[string][]coordinator.Hashes{"all": prompts[len(prompts)-2:]}
		for _, i := range l.rng.Perm(len(prompts) - 2)[:min(1000, len(prompts)-2)] {
			miss := append(prompts[i].Bytes()[:0:0], prompts[i].Bytes()...)
			from := l.rng.IntN(blocks) * 8
			appendHashes(miss[:from], l.rng, blocks-from/8)
			queries["hit"] = append(queries["hit"], prompts[i])
			queries["miss"] = append(queries["miss"], coordinator.NewHashes(miss, 8))
		}
		for _, kind := range []string{"hit", "miss", "all"} {
			b.Run(fmt.Sprintf("blocks=%d/%s", blocks, kind), func(b *testing.B) {
				var r Result
				for i := 0; b.Loop(); i++ {
					if err := l.fleet.Lookup(&r, queries[kind][i%len(queries[kind])]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(blocks), "ns/block")
				b.ReportMetric(float64(stats.Bytes)/float64(stats.Blocks), "B/block")
				b.ReportMetric(float64(l.stored)/l.took.Seconds()/1e6, "Mstores/s")
			})
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
		before := lookuptest.HeapBytes()
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
		heap, s := lookuptest.HeapBytes()-before, f.Stats()
		b.ReportMetric(float64(s.Bytes)/float64(s.Blocks), "B/block")
		b.ReportMetric(float64(heap)/float64(s.Blocks), "heapB/block")
		b.ReportMetric(float64(s.Entries)/float64(s.Blocks), "holders/block")
		runtime.KeepAlive(f)
	}
}
