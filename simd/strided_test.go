package simd

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// naiveEqualPrefixStrided is the definition of EqualPrefixStrided, byte by byte.
func naiveEqualPrefixStrided(a []byte, aStride int, b []byte, bStride int, hashLen int) int {
	if hashLen <= 0 || aStride < hashLen || bStride < hashLen {
		return 0
	}
	for k := 0; ; k++ {
		if k*aStride+hashLen > len(a) || k*bStride+hashLen > len(b) {
			return k
		}
		for j := range hashLen {
			if a[k*aStride+j] != b[k*bStride+j] {
				return k
			}
		}
	}
}

// stridedPair returns two strided arrays of n equal hashes. The bytes between the hashes
// differ, and restA and restB bytes of a partial hash follow the last one.
func stridedPair(fill func([]byte), n, aStride, bStride, hashLen, offA, offB, restA, restB int) (a, b []byte) {
	a = make([]byte, offA+max(n*aStride, 0)+hashLen)[offA:]
	b = make([]byte, offB+max(n*bStride, 0)+hashLen)[offB:]
	fill(a)
	fill(b)
	for k := range n {
		copy(b[k*bStride:][:hashLen], a[k*aStride:])
	}
	end := func(stride, rest int) int {
		if n == 0 {
			return min(rest, hashLen-1)
		}
		return (n-1)*stride + hashLen + min(rest, stride-1)
	}
	return a[:end(aStride, restA)], b[:end(bStride, restB)]
}

func TestEqualPrefixStridedExamples(t *testing.T) {
	tests := []struct {
		name    string
		a       string
		aStride int
		b       string
		bStride int
		hashLen int
		want    int
	}{
		{"empty", "", 2, "", 2, 2, 0},
		{"every second", "aa..bb..cc..", 4, "aabbcc", 2, 2, 3},
		{"every second, differing between", "aaxxbbxxcc", 4, "aayybbyycc", 4, 2, 3},
		{"last without its gap", "aa..bb", 4, "aabb", 2, 2, 2},
		{"second differs", "aa..bb..cc", 4, "aaxxcc", 2, 2, 1},
		{"partial", "aa..b", 4, "aabb", 2, 2, 1},
		{"partial within the stride", "aa..bb..c", 4, "aabbcc", 2, 2, 2},
		{"no gaps", "aabbcc", 2, "aabbcc", 2, 2, 3},
		{"stride below the length", "aaaaaa", 1, "aaaaaa", 2, 2, 0},
		{"stride 0", "aa", 0, "aa", 0, 2, 0},
		{"negative stride", "aaaaaa", -2, "aaaaaa", 2, 2, 0},
		{"length 0", "aa", 1, "aa", 1, 0, 0},
		{"negative length", "aa", 1, "aa", 1, -1, 0},
		{"length 0 without gaps", "aa", 0, "aa", 0, 0, 0},
		{"huge stride", "aabb", math.MaxInt/2 + 1, "aabb", 2, 2, 1},
	}
	forEachKernel(t, func(t *testing.T) {
		for _, tt := range tests {
			a, b := []byte(tt.a), []byte(tt.b)
			require.Equal(t, tt.want, EqualPrefixStrided(a, tt.aStride, b, tt.bStride, tt.hashLen), tt.name)
			require.Equal(t, tt.want, EqualPrefixStrided(b, tt.bStride, a, tt.aStride, tt.hashLen), "%s, exchanged", tt.name)
			if tt.aStride <= math.MaxInt/4 {
				require.Equal(t, tt.want, naiveEqualPrefixStrided(a, tt.aStride, b, tt.bStride, tt.hashLen), "%s: the reference itself", tt.name)
			}
		}
	})
}

// TestEqualPrefixStridedPositions puts a difference of one bit at every byte of every hash,
// for hash lengths around those that a kernel may treat specially.
func TestEqualPrefixStridedPositions(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rng, source := newTestRand(t)
		fill := func(p []byte) { source.Read(p) }
		for _, hashLen := range []int{1, 7, 8, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65} {
			for _, gaps := range [][2]int{{1, 0}, {0, 3}, {hashLen, 0}, {0, 7 * hashLen}, {hashLen, 2 * hashLen}} {
				for n := range 11 {
					aStride, bStride := hashLen+gaps[0], hashLen+gaps[1]
					a, b := stridedPair(fill, n, aStride, bStride, hashLen, rng.IntN(64), rng.IntN(64), rng.IntN(2*aStride), rng.IntN(2*bStride))
					if got := EqualPrefixStrided(a, aStride, b, bStride, hashLen); got != n {
						t.Fatalf("hash length %d, strides %d and %d, %d equal: got %d", hashLen, aStride, bStride, n, got)
					}
					for k := n - 1; k >= 0; k-- {
						for j := range hashLen {
							b[k*bStride+j] ^= 0x10
							if got := EqualPrefixStrided(a, aStride, b, bStride, hashLen); got != k {
								t.Fatalf("hash length %d, strides %d and %d, difference in %d: got %d", hashLen, aStride, bStride, k, got)
							}
							b[k*bStride+j] ^= 0x10
						}
						if k%2 == 0 { // what follows the first difference must not matter
							b[k*bStride] ^= 0xFF
						}
					}
				}
			}
		}
	})
}

func TestEqualPrefixStridedDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	forEachKernel(t, func(t *testing.T) {
		var a, b [4096]byte
		require.Zero(t, testing.AllocsPerRun(100, func() {
			benchSink = EqualPrefixStrided(a[:], 64, b[:], 32, 32) + EqualPrefixStrided(a[:], 64, b[:], 32, 20)
		}))
	})
}

// FuzzEqualPrefixStrided compares every kernel with the definition. As in FuzzEqualPrefix,
// the hashes are equal except for the fuzzer's changes.
func FuzzEqualPrefixStrided(f *testing.F) {
	f.Add(bytes.Repeat([]byte{7}, 300), []byte{255, 1, 40, 2}, uint8(32), uint8(32), uint8(0), uint8(0), uint8(3))
	f.Add(bytes.Repeat([]byte{7}, 300), []byte{255, 1, 40, 2}, uint8(16), uint8(0), uint8(48), uint8(1), uint8(0))
	f.Add([]byte{}, []byte{}, uint8(0), uint8(0), uint8(0), uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, data, changes []byte, hashLen, gapA, gapB, restA, restB uint8) {
		length := int(hashLen)
		aStride, bStride := length+int(gapA), length+int(gapB)
		n := 0
		if length > 0 {
			n = len(data) / length
		}
		a, b := stridedPair(func(p []byte) { copy(p, data) }, n, aStride, bStride, max(length, 1), 0, 0, int(restA), int(restB))
		for at := 0; len(changes) >= 2; changes = changes[2:] {
			if at += int(changes[0]); at >= len(b) {
				break
			}
			b[at] = changes[1]
		}
		want := naiveEqualPrefixStrided(a, aStride, b, bStride, length)
		forEachKernelInline(t, func(kernel string) {
			if got := EqualPrefixStrided(a, aStride, b, bStride, length); got != want {
				t.Errorf("%s: got %d, want %d\na %x\nb %x\nhash length %d, strides %d and %d", kernel, got, want, a, b, length, aStride, bStride)
			}
		})
	})
}

// BenchmarkEqualPrefixStrided compares every second or fourth hash of one array with all of
// another, in the second-level cache.
func BenchmarkEqualPrefixStrided(b *testing.B) {
	forEachKernel(b, func(b *testing.B) {
		for _, hashLen := range []int{16, 32, 64} {
			for _, k := range []int{2, 4} {
				for _, hashes := range []int{1, 4, 16, 64, 2048} {
					b.Run(fmt.Sprintf("hashlen=%d/stride=%d/hashes=%d", hashLen, k, hashes), func(b *testing.B) {
						stored, received := stridedPair(func(p []byte) { clear(p) }, hashes, hashLen, k*hashLen, hashLen, 0, 0, 0, 0)
						for b.Loop() {
							benchSink = EqualPrefixStrided(received, k*hashLen, stored, hashLen, hashLen)
						}
						if benchSink != hashes {
							b.Fatalf("got %d equal hashes, want %d", benchSink, hashes)
						}
					})
				}
			}
		}
	})
}

func ExampleEqualPrefixStrided() {
	received := []byte("aaaa....bbbb....cccc....")
	stored := []byte("aaaabbbbxxxx")
	fmt.Println(EqualPrefixStrided(received, 8, stored, 4, 4))
	// Output: 2
}
