package simd

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// rotation is the size of the arrays that a mem=rotate benchmark walks through, each. It is
// larger than the second-level cache of any processor and than the share of the last level
// that one core usually gets; on a server part with hundreds of megabytes of last-level
// cache it measures that cache and not the memory.
const rotation = 64 << 20

// benchHashLen is the length of a hash in the benchmarks: SHA-256, the usual one.
const benchHashLen = 32

// benchSink keeps results alive, so that no call is dropped as useless.
var benchSink int

// BenchmarkEqualBaseline asks the standard library the same question without the answer:
// whether the runs are equal, not where they part. Its assembly uses vectors of the same
// width, so it shows how fast the machine can read two runs.
func BenchmarkEqualBaseline(b *testing.B) {
	compareRuns(b, func(x, y []byte) int {
		if !bytes.Equal(x, y) {
			return 0
		}
		return len(x) / benchHashLen
	})
}

// BenchmarkEqualPrefix compares equal runs, the longest way through the kernel: mem=hot the
// same run again and again, mem=rotate another one each time. Bytes per second count one of
// the two arrays, as the other one is the answer to it.
func BenchmarkEqualPrefix(b *testing.B) {
	eachKernel(b, func(b *testing.B) {
		compareRuns(b, func(x, y []byte) int { return EqualPrefix(x, y, benchHashLen) })
	})
}

func compareRuns(b *testing.B, compare func(x, y []byte) int) {
	received := make([]byte, rotation)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(received)
	stored := append([]byte(nil), received...)

	run := func(mem string, hashes, step int) {
		n := hashes * benchHashLen
		b.Run(fmt.Sprintf("hashlen=%d/hashes=%d/mem=%s", benchHashLen, hashes, mem), func(b *testing.B) {
			b.SetBytes(int64(n))
			at := 0
			for b.Loop() {
				if at+n > rotation {
					at = 0
				}
				benchSink = compare(received[at:at+n], stored[at:at+n])
				at += step
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
