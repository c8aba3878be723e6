package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// rotateBytes is the size of each array that a mem=rotate benchmark walks through. It is
// larger than any second-level cache and than one core's usual share of the last level. With
// hundreds of megabytes of last-level cache it measures that cache, not the memory.
const rotateBytes = 64 << 20

// benchHashLen is the length of a hash in the benchmarks: SHA-256, the usual one.
const benchHashLen = 32

// benchSink keeps results alive, so that the compiler removes no call.
var benchSink int

// BenchmarkEqualPrefix compares equal arrays, which the kernel reads to the end. mem=hot
// compares one pair again and again, mem=rotate another pair each time. Bytes per second
// count one array of the pair.
func BenchmarkEqualPrefix(b *testing.B) {
	forEachKernel(b, func(b *testing.B) {
		benchmarkEqual(b, func(x, y []byte) int { return EqualPrefix(x, y, benchHashLen) })
	})
}

func benchmarkEqual(b *testing.B, compare func(x, y []byte) int) {
	received := make([]byte, rotateBytes)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(received)
	stored := append([]byte(nil), received...)

	run := func(mem string, hashes, advance int) {
		n := hashes * benchHashLen
		b.Run(fmt.Sprintf("hashlen=%d/hashes=%d/mem=%s", benchHashLen, hashes, mem), func(b *testing.B) {
			b.SetBytes(int64(n))
			at := 0
			for b.Loop() {
				if at+n > rotateBytes {
					at = 0
				}
				benchSink = compare(received[at:at+n], stored[at:at+n])
				at += advance
			}
			if benchSink != hashes {
				b.Fatalf("got %d equal hashes, want %d", benchSink, hashes)
			}
		})
	}
	for _, hashes := range []int{1, 2, 4, 8, 64, 512, 8192} {
		run("hot", hashes, 0)
	}
	for _, hashes := range []int{64, 512, 8192} {
		run("rotate", hashes, hashes*benchHashLen)
	}
}
