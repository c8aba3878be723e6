package simd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxTestLen is the longest array, in bytes, that the exhaustive tests try: two blocks of the
// widest kernel, one vector and a few bytes. So each loop runs twice and each kind of tail
// follows it.
const maxTestLen = 2*128 + 32 + 3

// naiveEqualPrefix is the definition of EqualPrefix, byte by byte: the tests' reference.
func naiveEqualPrefix(a, b []byte, hashLen int) int {
	if hashLen <= 0 {
		return 0
	}
	n := min(len(a), len(b)) / hashLen
	for k := range n {
		for j := range hashLen {
			if a[k*hashLen+j] != b[k*hashLen+j] {
				return k
			}
		}
	}
	return n
}

// newTestRand returns a random source and logs its seed.
func newTestRand(t testing.TB) (*rand.Rand, *rand.ChaCha8) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	source := rand.NewChaCha8(key)
	return rand.New(source), source
}

// randomPair returns two equal arrays of n random bytes, offA and offB bytes from the start
// of their allocations.
func randomPair(source *rand.ChaCha8, n, offA, offB int) (a, b []byte) {
	a = make([]byte, offA+n)[offA:]
	b = make([]byte, offB+n)[offB:]
	source.Read(a)
	copy(b, a)
	return a, b
}

func TestEqualPrefixExamples(t *testing.T) {
	array := func(hashes ...string) []byte {
		var out []byte
		for _, h := range hashes {
			out = append(out, h...)
		}
		return out
	}
	tests := []struct {
		name    string
		a, b    []byte
		hashLen int
		want    int
	}{
		{"both nil", nil, nil, 4, 0},
		{"one nil", array("aaaa"), nil, 4, 0},
		{"one hash", array("aaaa"), array("aaaa"), 4, 1},
		{"first differs", array("aaaa", "bbbb"), array("caaa", "bbbb"), 4, 0},
		{"second differs", array("aaaa", "bbbb", "cccc"), array("aaaa", "bbbx", "cccc"), 4, 1},
		{"equal again later", array("a", "b", "c"), array("a", "x", "c"), 1, 1},
		{"first longer", array("aaaa", "bbbb"), array("aaaa"), 4, 1},
		{"second longer", array("aaaa"), array("aaaa", "bbbb"), 4, 1},
		{"equal partial hash", array("aaaa", "bb"), array("aaaa", "bb"), 4, 1},
		{"different partial hash", array("aaaa", "bb"), array("aaaa", "bx"), 4, 1},
		{"partial against whole", array("aaaa", "bb"), array("aaaa", "bbbb"), 4, 1},
		{"only a partial hash", array("aaa"), array("aaa"), 4, 0},
		{"length 0", array("aaaa"), array("aaaa"), 0, 0},
		{"negative length", array("aaaa"), array("aaaa"), -1, 0},
		{"hash longer than a block", bytes.Repeat([]byte("a"), 900), bytes.Repeat([]byte("a"), 900), 300, 3},
	}
	forEachKernel(t, func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				require.Equal(t, tt.want, EqualPrefix(tt.a, tt.b, tt.hashLen))
				require.Equal(t, tt.want, EqualPrefix(tt.b, tt.a, tt.hashLen), "arguments exchanged")
				require.Equal(t, tt.want, naiveEqualPrefix(tt.a, tt.b, tt.hashLen), "the reference itself")
			})
		}
	})
}

// TestEqualPrefixLengths compares equal arrays of every length, also of two different
// lengths, for every hash length. The extra bytes of the longer array must not matter.
func TestEqualPrefixLengths(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		_, source := newTestRand(t)
		a, b := randomPair(source, maxTestLen+64, 1, 2)
		for hashLen := 1; hashLen <= 66; hashLen++ {
			for n := range maxTestLen + 1 {
				for _, more := range []int{0, 1, 7, 64} {
					want := n / hashLen
					if got := EqualPrefix(a[:n], b[:n+more], hashLen); got != want {
						t.Fatalf("hash length %d, lengths %d and %d: got %d, want %d", hashLen, n, n+more, got, want)
					}
					if got := EqualPrefix(a[:n+more], b[:n], hashLen); got != want {
						t.Fatalf("hash length %d, lengths %d and %d: got %d, want %d", hashLen, n+more, n, got, want)
					}
				}
			}
		}
	})
}

// TestEqualPrefixPositions puts the first difference, of one bit, at every position of
// arrays of every length: once alone, once with all bytes after it different too.
func TestEqualPrefixPositions(t *testing.T) {
	hashLens := []int{1, 8, 20, 32, 64}
	if !raceEnabled && !testing.Short() {
		hashLens = hashLens[:0]
		for hashLen := 1; hashLen <= 64; hashLen++ {
			hashLens = append(hashLens, hashLen)
		}
	}
	forEachKernel(t, func(t *testing.T) {
		_, source := newTestRand(t)
		a, b := randomPair(source, maxTestLen, 3, 8)
		others := make([]byte, maxTestLen) // b, with every byte different from a's
		for i := range others {
			others[i] = a[i] ^ 0xFF
		}
		check := func(n, at int, kind string) {
			for _, hashLen := range hashLens {
				want := min(at/hashLen, n/hashLen)
				if got := EqualPrefix(a[:n], b[:n], hashLen); got != want {
					t.Fatalf("hash length %d, length %d, %s at %d: got %d, want %d", hashLen, n, kind, at, got, want)
				}
			}
		}
		for n := 1; n <= maxTestLen; n++ {
			for at := range n {
				b[at] ^= 1 << (at % 8)
				check(n, at, "one difference")
				b[at] = a[at]
			}
			for at := n - 1; at >= 0; at-- {
				b[at] = others[at]
				check(n, at, "differences from the one")
			}
			copy(b[:n], a)
		}
	})
}

// TestEqualPrefixOffsets compares arrays at every pair of alignments within a vector.
func TestEqualPrefixOffsets(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rng, source := newTestRand(t)
		for offA := range 33 {
			for offB := range 33 {
				n := 1 + rng.IntN(maxTestLen)
				a, b := randomPair(source, n, offA, offB)
				at := rng.IntN(n)
				if got := EqualPrefix(a, b, 1); got != n {
					t.Fatalf("offsets %d and %d, length %d: got %d", offA, offB, n, got)
				}
				b[at] ^= 0x80
				if got := EqualPrefix(a, b, 1); got != at {
					t.Fatalf("offsets %d and %d, length %d: got %d, want %d", offA, offB, n, got, at)
				}
			}
		}
	})
}

// TestEqualPrefixRandom compares with the reference on long arrays with a few changed bytes.
func TestEqualPrefixRandom(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rng, source := newTestRand(t)
		for range 2000 {
			a, b := randomPair(source, rng.IntN(1<<rng.IntN(14)), rng.IntN(64), rng.IntN(64))
			for range rng.IntN(4) {
				if len(b) > 0 {
					b[rng.IntN(len(b))] = byte(rng.Uint32())
				}
			}
			a, b = a[:len(a)-rng.IntN(len(a)/8+1)], b[:len(b)-rng.IntN(len(b)/8+1)]
			hashLen := 1 + rng.IntN(100)
			if got, want := EqualPrefix(a, b, hashLen), naiveEqualPrefix(a, b, hashLen); got != want {
				t.Fatalf("lengths %d and %d, hash length %d: got %d, want %d", len(a), len(b), hashLen, got, want)
			}
		}
	})
}

// TestEqualPrefixLong puts the difference into every block of arrays around the length from
// which a kernel prefetches.
func TestEqualPrefixLong(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		_, source := newTestRand(t)
		const page = 4096
		for _, n := range []int{page, page + 127, page + 128, page + 129, page + 255, page + 256, 2*page + 33} {
			a, b := randomPair(source, n, 5, 64)
			if got := EqualPrefix(a, b, 1); got != n {
				t.Fatalf("length %d: got %d", n, got)
			}
			for at := 0; at < n; at += 31 {
				b[at] ^= 2
				if got := EqualPrefix(a, b, 1); got != at {
					t.Fatalf("length %d: got %d, want %d", n, got, at)
				}
				b[at] = a[at]
			}
		}
	})
}

func TestEqualPrefixDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	forEachKernel(t, func(t *testing.T) {
		var a, b [4096]byte // on the stack, unless the kernel makes its arguments escape
		require.Zero(t, testing.AllocsPerRun(100, func() {
			var c [64]byte
			benchSink = EqualPrefix(a[:], b[:], 32) + EqualPrefix(c[:], a[:], 32)
		}))
	})
}

// FuzzEqualPrefix compares every kernel with the reference. Random arrays would differ in the
// first hash, so b is a copy of a with changes. The fuzzer's changes are pairs of bytes: the
// distance to the next change and its value.
func FuzzEqualPrefix(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte{5, 0}, uint8(4), uint8(0), uint8(0), uint16(0))
	f.Add(bytes.Repeat([]byte{7}, 300), []byte{255, 1, 40, 2}, uint8(32), uint8(1), uint8(3), uint16(0))
	f.Add(bytes.Repeat([]byte{7}, 300), []byte{200, 7, 90, 2}, uint8(1), uint8(0), uint8(1), uint16(0))
	f.Add(bytes.Repeat([]byte{0xCC}, 128), []byte{}, uint8(64), uint8(31), uint8(32), uint16(1))
	f.Add([]byte{}, []byte{}, uint8(0), uint8(0), uint8(0), uint16(0))
	f.Fuzz(func(t *testing.T, data, changes []byte, hashLen, offA, offB uint8, cut uint16) {
		a := append(make([]byte, offA), data...)[offA:]
		b := append(make([]byte, offB), data...)[offB:]
		for at := 0; len(changes) >= 2; changes = changes[2:] {
			if at += int(changes[0]); at >= len(b) {
				break
			}
			b[at] = changes[1]
		}
		b = b[:len(b)-min(int(cut), len(b))]

		want := naiveEqualPrefix(a, b, int(hashLen))
		forEachKernelInline(t, func(kernel string) {
			if got := EqualPrefix(a, b, int(hashLen)); got != want {
				t.Errorf("%s: got %d, want %d\na %x\nb %x\nhash length %d", kernel, got, want, a, b, hashLen)
			}
			if got := EqualPrefix(b, a, int(hashLen)); got != want {
				t.Errorf("%s, exchanged: got %d, want %d\na %x\nb %x\nhash length %d", kernel, got, want, a, b, hashLen)
			}
		})
	})
}

// forEachKernelInline is forEachKernel without subtests, which would slow down fuzzing.
func forEachKernelInline(t *testing.T, f func(kernel string)) {
	t.Helper()
	before := Kernel()
	for _, kernel := range Kernels() {
		require.NoError(t, Force(kernel))
		f(kernel)
	}
	require.NoError(t, Force(before))
}

func ExampleEqualPrefix() {
	received := []byte("aaaabbbbccccdddd")
	stored := []byte("aaaabbbbxxxxdddd")
	fmt.Println(EqualPrefix(received, stored, 4))
	// Output: 2
}
