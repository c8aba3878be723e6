package blockhash_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/blockhash"
)

// promptTokens is the length of the prompts of the benchmarks: 8,192 tokens.
var promptTokens = tokenSpec{N: 8192, Seed: 1, Top: 150_000}.expand()

// BenchmarkVLLM hashes a prompt of 8,192 tokens. ns/block is that of one block.
func BenchmarkVLLM(b *testing.B) {
	seed := "0"
	for _, algorithm := range blockhash.Algorithms() {
		for _, block := range []int{16, 64} {
			b.Run(fmt.Sprintf("algorithm=%s/block=%d", algorithm, block), func(b *testing.B) {
				h, err := blockhash.NewVLLM(blockhash.VLLMConfig{
					Algorithm: blockhash.Algorithm(algorithm), Seed: &seed, BlockSize: block,
				})
				require.NoError(b, err)
				var dst []byte
				b.ReportAllocs()
				for b.Loop() {
					if dst, err = h.AppendHashes(dst[:0], promptTokens, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*h.NumHashes(len(promptTokens))), "ns/block")
			})
		}
	}
}

// BenchmarkSGLang hashes a prompt of 8,192 tokens. ns/page is that of one page.
func BenchmarkSGLang(b *testing.B) {
	for _, page := range []int{16, 64} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			h, err := blockhash.NewSGLang(blockhash.SGLangConfig{PageSize: page})
			require.NoError(b, err)
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				if dst, err = h.AppendHashes(dst[:0], promptTokens); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*h.NumHashes(len(promptTokens))), "ns/page")
		})
	}
}
