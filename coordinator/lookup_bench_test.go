package coordinator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/conformance"
)

// BenchmarkLookup is a whole lookup but for the store, which writes the keys into a buffer and answers
// at once from an array.
func BenchmarkLookup(b *testing.B) {
	for _, ranks := range []int{1, 4} {
		c, err := New(Pool{ModelName: "meta-llama/Llama-3.1-70B", TPSize: ranks})
		require.NoError(b, err)
		for _, n := range []int{64, 8192, 131072} {
			hashes := NewHashes(conformance.Blob("bench", n, 32), 32)
			ones := make([]int, n*ranks)
			for i := range ones {
				ones[i] = 1
			}
			half := append(append([]int(nil), ones[:n/2*ranks]...), make([]int, n/2*ranks)...)
			for _, hit := range []struct {
				name    string
				answers []int
				hit     int64
			}{{"all", ones, int64(16 * n)}, {"half", half, int64(8 * n)}, {"none", make([]int, n*ranks), 0}} {
				for _, strategy := range strategies {
					b.Run(fmt.Sprintf("strategy=%s/ranks=%d/hashes=%d/hit=%s", strategy.name, ranks, n, hit.name), func(b *testing.B) {
						b.ReportAllocs()
						var buffer []byte
						for b.Loop() {
							at := 0
							got, err := strategy.lookup(c, int64(16*n), hashes, keysFunc(func(keys *Keys) ([]int, error) {
								from := at
								at += keys.Len()
								for i := range keys.Len() {
									if i%1024 == 0 {
										buffer = buffer[:0]
									}
									buffer = keys.Append(buffer, i)
								}
								return hit.answers[from:at:at], nil
							}))
							if err != nil || got.Tokens != hit.hit {
								b.Fatal(got, err)
							}
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/hash")
					})
				}
			}
		}
	}
}

// keysFunc is a KeyStore that reserves nothing.
type keysFunc func(keys *Keys) ([]int, error)

func (f keysFunc) Reserve(int64) error              { return nil }
func (f keysFunc) Exists(keys *Keys) ([]int, error) { return f(keys) }

// strategies are the ways to look up; their answers are equal.
var strategies = []struct {
	name   string
	lookup func(c *Coordinator, numTokens int64, hashes Hashes, store KeyStore) (Hit, error)
}{
	{"all", (*Coordinator).Lookup},
	{"gallop", (*Coordinator).Gallop},
}
