package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const sizeChain = 8192 // keys of a chain or request

// benchmarkSizes are numbers of entries: in the second-level cache, and far more than the
// processor's caches hold.
var benchmarkSizes = []int{1 << 14, 1 << 18, 10_000_000}

func fillIndex(b *testing.B, keys []byte) *Index {
	x := mustNew(b, Config{MaxBytes: 4 << 30, Places: 1, Groups: [][]int{{0}}})
	for len(keys) > 0 {
		n := min(sizeChain*32, len(keys))
		require.NoError(b, x.Store(new(Writer), []int{0}, keys[:n], 32))
		keys = keys[n:]
	}
	return x
}

// BenchmarkFill stores keys in chains of 8,192 into an empty index.
func BenchmarkFill(b *testing.B) {
	for _, entries := range benchmarkSizes {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			keys := drawnKeys(0, entries)
			n := 0
			for b.Loop() {
				fillIndex(b, keys)
				n++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*entries), "ns/key")
		})
	}
}

// BenchmarkRandomOrder looks up stored keys in random order, 8,192 a request.
func BenchmarkRandomOrder(b *testing.B) {
	for _, entries := range benchmarkSizes {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			keys := drawnKeys(0, entries)
			x := fillIndex(b, keys)
			mixed := make([]byte, 0, len(keys))
			for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(entries) {
				mixed = append(mixed, keys[i*32:(i+1)*32]...)
			}
			var c Cursor
			var runs [64]Run
			n, at := 0, 0
			for b.Loop() {
				if at == len(mixed) {
					at = 0
				}
				request := mixed[at:min(at+sizeChain*32, len(mixed))]
				at += len(request)
				n += len(request) / 32
				x.Begin(&c, 32)
				for len(request) > 0 {
					filled, covered, _ := x.Probe(&c, request, 1, runs[:], true)
					if filled != 1 || runs[0].Coverage == nil {
						b.Fatal("a stored key was not found")
					}
					request = request[covered*32:]
				}
				x.End(&c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/key")
		})
	}
}

// BenchmarkReceivedChain looks up stored chains of 8,192 keys, each copied before, as a server
// has it when it was received: the request is in the caches, and the index is not. The copy is
// not timed.
func BenchmarkReceivedChain(b *testing.B) {
	for _, entries := range benchmarkSizes {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			keys := drawnKeys(0, entries)
			x := fillIndex(b, keys)
			order := rand.New(rand.NewPCG(1, 1)).Perm(entries / sizeChain)
			received := make([]byte, sizeChain*32)
			var c Cursor
			var runs [64]Run
			n, took := 0, time.Duration(0)
			for b.Loop() {
				chain := order[n%len(order)]
				n++
				copy(received, keys[chain*sizeChain*32:])
				begun := time.Now()
				x.Begin(&c, 32)
				for request := received; len(request) > 0; {
					filled, covered, _ := x.Probe(&c, request, 1, runs[:], true)
					if filled != 1 || runs[0].Coverage == nil {
						b.Fatal("a stored key was not found")
					}
					request = request[covered*32:]
				}
				x.End(&c)
				took += time.Since(begun)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(n*sizeChain), "ns/key")
		})
	}
}
