package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchmarkChains are the lengths of chains of an index that is dumped and loaded: of a prompt, and of
// the longest requests.
var benchmarkChains = []int{64, 1000, 8192}

// fillChains stores n keys in chains of random lengths around length, and looks a third of them up.
func fillChains(b *testing.B, n, length int) *Index {
	x := mustNew(b, Config{MaxBytes: 4 << 30, Places: 1, Groups: [][]int{{0}}})
	keys, rng := drawnKeys(1, n), rand.New(rand.NewPCG(1, 1))
	for from := 0; from < n; {
		to := min(from+length/2+rng.IntN(length), n)
		storeAt(b, x, 0, cut(keys, from, to))
		if rng.IntN(3) == 0 {
			probe(x, cut(keys, from, to), 32, 8192, false)
		}
		from = to
	}
	return x
}

// BenchmarkDump dumps an index of 5 million entries.
func BenchmarkDump(b *testing.B) {
	const entries = 5_000_000
	for _, length := range benchmarkChains {
		b.Run(fmt.Sprintf("chains=%d", length), func(b *testing.B) {
			x := fillChains(b, entries, length)
			records, n := 0, 0
			for b.Loop() {
				require.NoError(b, x.Dump(context.Background(), DumpOptions{}, func(r *DumpRecord) error {
					records++
					n += len(r.Keys) / 32
					return nil
				}))
			}
			require.Equal(b, b.N*entries, n)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/key")
			b.ReportMetric(float64(n)/float64(records), "keys/record")
		})
	}
}

// BenchmarkLoad loads a dump of 10 million entries into an empty index.
func BenchmarkLoad(b *testing.B) {
	const entries = 10_000_000
	for _, length := range benchmarkChains {
		b.Run(fmt.Sprintf("chains=%d", length), func(b *testing.B) {
			var records []DumpRecord
			{
				x := fillChains(b, entries, length)
				records = dumpRecords(b, x)
			}
			for b.Loop() {
				x := mustNew(b, Config{MaxBytes: 4 << 30, Places: 1, Groups: [][]int{{0}}})
				for i := range records {
					require.NoError(b, x.Load(&records[i]))
				}
				require.EqualValues(b, entries, x.entries)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/entries, "ns/key")
			b.ReportMetric(float64(b.N)*entries/b.Elapsed().Seconds()/1e6, "Mkeys/s")
		})
	}
}
