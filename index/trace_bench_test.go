package index_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
)

// BenchmarkTrace walks a recorded trace, in hashes of 16 tokens: each request is looked up
// until a hash is absent, and then stored. It reports the time of all lookups for each hash that hit; an
// operation is a walk. The trace is an excerpt, or that of HITLINE_BENCH_TRACE.
func BenchmarkTrace(b *testing.B) {
	const tokens = 16
	trace := workload.FileTrace("../bench/testdata/conversation_excerpt.jsonl")
	entries := 1 << 20 // more than the excerpt has
	if path := os.Getenv("HITLINE_BENCH_TRACE"); path != "" {
		trace, entries = workload.FileTrace(path), 1<<24
	}
	walk := func(b *testing.B, s subject, answered func(request, hashes int)) (took time.Duration, hits int) {
		var hashes []byte
		require.NoError(b, trace.Each(b.Context(), tokens, 0, func(number int, ids []uint64) error {
			hashes = workload.AppendHashes(hashes[:0], ids, tokens)
			begun := time.Now()
			n := s.leading(hashes)
			took += time.Since(begun)
			answered(number, n)
			hits += n
			return s.store(hashes)
		}))
		return took, hits
	}
	var right []int // by request, as the index answered first
	for _, subject := range subjects {
		b.Run("index="+subject.name, func(b *testing.B) {
			took, hits := time.Duration(0), 0
			for b.Loop() {
				s := subject.make(b, entries)
				t, h := walk(b, s, func(number, n int) {
					if number > len(right) {
						right = append(right, n)
					}
					if right[number-1] != n {
						b.Fatalf("request %d: %d leading hashes, of an earlier walk %d", number, n, right[number-1])
					}
				})
				if p, ok := s.(*pool); ok {
					require.Zero(b, p.Stats().Evicted, "the trace has more hashes than the index has room for")
					entries = int(p.Stats().Entries) // so many the map has room for
				}
				took, hits = took+t, hits+h
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(hits), "ns/hit-hash")
		})
	}
}
