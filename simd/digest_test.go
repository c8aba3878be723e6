package simd

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var digestSink Digest

// plus returns the sum of two elements of the field.
func plus(x, y Digest) Digest { return Digest{x.Low ^ y.Low, x.High ^ y.High} }

// element returns the element of the field that is stored in the first 16 bytes of b.
func element(b []byte) Digest {
	return Digest{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// timesX returns the element of the field times x.
func timesX(e Digest) Digest {
	return Digest{e.Low<<1 ^ e.High>>63*0x87, e.High<<1 | e.Low>>63}
}

// naiveMultiply returns the product of two elements of the field, bit by bit.
func naiveMultiply(x, y Digest) (product Digest) {
	for i := range 128 {
		if [2]uint64{y.Low, y.High}[i/64]>>(i%64)&1 == 1 {
			product = plus(product, x)
		}
		x = timesX(x)
	}
	return product
}

// naiveDigest is the definition of Sum.
func naiveDigest(random *[MaxDigestBytes]byte, message []byte) (digest Digest) {
	var filled [MaxDigestBytes]byte
	copy(filled[:], message)
	word := func(i int) Digest { return plus(element(filled[16*i:]), element(random[16*i:])) }
	for chunk := 0; 128*chunk < len(message); chunk++ {
		for i := 8 * chunk; i < 8*chunk+4; i++ {
			digest = plus(digest, naiveMultiply(word(i), word(i+4)))
		}
	}
	return digest
}

func randomDigestSecret(source *rand.ChaCha8) (*DigestSecret, *[MaxDigestBytes]byte) {
	var random [MaxDigestBytes]byte
	source.Read(random[:])
	return newDigestSecret(&random), &random
}

// TestDigest compares each kernel with the definition, for every length and at random
// alignments.
func TestDigest(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rng, source := newTestRand(t)
		whole := make([]byte, MaxDigestBytes+64)
		for n := 0; n <= MaxDigestBytes; n += 64 {
			s, random := randomDigestSecret(source)
			source.Read(whole)
			message := whole[rng.IntN(64):][:n]
			if got, want := s.Sum(message), naiveDigest(random, message); got != want {
				t.Fatalf("%d bytes: got %#x, want %#x", n, got, want)
			}
		}
	})
}

// TestDigestExtremes has words of zeros, of ones and with the highest bits in messages and
// secrets.
func TestDigestExtremes(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		for _, fill := range [][2]byte{{0, 0}, {0, 0xFF}, {0xFF, 0}, {0xFF, 0xFF}, {0x80, 0}, {0, 0x80}} {
			var random [MaxDigestBytes]byte
			message := make([]byte, MaxDigestBytes)
			for i := range message {
				// One word of four, and an odd number of products: equal ones cancel out.
				if i/16%4 == 0 {
					message[i], random[i] = fill[0], fill[1]
				}
			}
			for _, n := range []int{64, 128, 192, 2048 - 64, 2048 - 128, MaxDigestBytes - 128} {
				require.Equal(t, naiveDigest(&random, message[:n]), newDigestSecret(&random).Sum(message[:n]),
					"message of %#x, secret of %#x, %d bytes", fill[0], fill[1], n)
			}
		}
	})
}

// TestDigestGolden keeps the digest from changing.
func TestDigestGolden(t *testing.T) {
	golden := map[int]Digest{
		64:   {0xffd8545eee24e26d, 0x2fbe319c39bf8de8},
		128:  {0x72b440a5e596d89a, 0x1b157ff3fdefc84},
		192:  {0xad959f703b7b288, 0x2eac4a48969121af},
		2048: {0x5b21a640f5c9871b, 0xf7aa12d6d1cb8a10},
		2112: {0x4ed99adfac9af738, 0x8dac389fa599ea01},
		4096: {0x206b1ff2fd249d10, 0x54413cb718bf94f8},
	}
	forEachKernel(t, func(t *testing.T) {
		source := rand.NewChaCha8([32]byte{'g', 'o', 'l', 'd'})
		s, _ := randomDigestSecret(source)
		message := make([]byte, MaxDigestBytes)
		source.Read(message)
		for n, want := range golden {
			got := s.Sum(message[:n])
			require.Equal(t, want, got, "%d bytes: got %#x", n, got)
		}
	})
}

// TestDigestFindsEveryBit flips every bit of messages of some lengths, one at a time.
func TestDigestFindsEveryBit(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		_, source := newTestRand(t)
		s, _ := randomDigestSecret(source)
		lengths := []int{64, 128, 192, 2048, 2112}
		if Kernel() == kernelGeneric || testing.Short() {
			lengths = []int{64, 448}
		}
		for _, n := range lengths {
			message := make([]byte, n)
			source.Read(message)
			seen := map[Digest]int{s.Sum(message): -1}
			for bit := range 8 * n {
				message[bit/8] ^= 1 << (bit % 8)
				digest := s.Sum(message)
				message[bit/8] ^= 1 << (bit % 8)
				if other, found := seen[digest]; found {
					t.Fatalf("%d bytes: bits %d and %d have one digest", n, bit, other)
				}
				seen[digest] = bit
			}
		}
	})
}

// TestDigestDifference checks what the probability of an error rests on: the digests of two
// messages that differ in one word differ by the difference times the partner of the word,
// which the secret makes random.
func TestDigestDifference(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rng, source := newTestRand(t)
		for range 200 {
			s, random := randomDigestSecret(source)
			message := make([]byte, 64*(1+rng.IntN(MaxDigestBytes/64)))
			source.Read(message)
			before := s.Sum(message)

			// Words 0 and 4 of every eight are partners, and so on. The partner of one of the
			// last four may be zeros, to which the secret is added.
			word := rng.IntN(len(message) / 16)
			partner := element(random[16*(word^4):])
			if at := 16 * (word ^ 4); at < len(message) {
				partner = plus(partner, element(message[at:]))
			}
			other := make([]byte, 16)
			source.Read(other)
			difference := plus(element(message[16*word:]), element(other))
			copy(message[16*word:], other)
			after, want := s.Sum(message), naiveMultiply(difference, partner)
			require.Equal(t, want, plus(before, after))
		}
	})
}

func TestReduce(t *testing.T) {
	power := Digest{Low: 1}
	for i := range 255 {
		var sum [4]uint64
		sum[i/64] = 1 << (i % 64)
		require.Equal(t, power, reduce(&sum), "x^%d", i)
		power = timesX(power)
	}
	rng, _ := newTestRand(t)
	for range 1000 {
		x := [4]uint64{rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64() >> 1}
		y := [4]uint64{rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64() >> 1}
		a, b := reduce(&x), reduce(&y)
		for i := range x {
			x[i] ^= y[i]
		}
		require.Equal(t, plus(a, b), reduce(&x), "of a sum")
	}
}

func TestMultiply(t *testing.T) {
	rng, _ := newTestRand(t)
	values := []uint64{0, 1, 1 << 63, ^uint64(0), 0x1111_1111_1111_1111, 0x8888_8888_8888_8888}
	for range 100 {
		values = append(values, rng.Uint64())
	}
	for _, x := range values {
		for _, y := range values {
			// A product of two halves has no degree above 126: the field is large enough.
			low, high := multiply(x, y)
			require.Equal(t, naiveMultiply(Digest{Low: x}, Digest{Low: y}), Digest{low, high})
		}
	}
}

func TestDigestLengths(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		s := NewDigestSecret()
		for _, n := range []int{1, 63, 65, 96, MaxDigestBytes + 1, MaxDigestBytes + 64} {
			require.PanicsWithValue(t, fmt.Sprintf("simd: digest of %d bytes: pass a multiple of 64, at most 4096", n),
				func() { s.Sum(make([]byte, n)) })
		}
	})
}

func TestNewDigestSecret(t *testing.T) {
	a, b := NewDigestSecret(), NewDigestSecret()
	for i := range a.words {
		require.NotEqual(t, a.words[i], b.words[i])
		require.NotZero(t, a.words[i])
	}
}

func TestFastDigest(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		if Kernel() == kernelGeneric {
			require.False(t, FastDigest())
		} else if !FastDigest() {
			require.NotEqual(t, "true", os.Getenv("CI"), "a CI machine must multiply polynomials")
			t.Skip("this processor does not multiply polynomials")
		}
	})
}

func TestDigestDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	forEachKernel(t, func(t *testing.T) {
		s, message := NewDigestSecret(), make([]byte, 2048)
		require.Zero(t, testing.AllocsPerRun(10, func() { digestSink = s.Sum(message) }))
	})
}

// FuzzDigest compares every kernel with the definition, on the fuzzer's secret and message,
// both repeated to the lengths that are needed.
func FuzzDigest(f *testing.F) {
	f.Add([]byte("secret"), []byte("message"), uint8(3))
	f.Add([]byte{0}, []byte{0xFF}, uint8(64))
	f.Fuzz(func(t *testing.T, secret, message []byte, hashes uint8) {
		if len(secret) == 0 || len(message) == 0 || hashes > MaxDigestBytes/64 {
			t.Skip()
		}
		var random, whole [MaxDigestBytes]byte
		for i := range random {
			random[i], whole[i] = secret[i%len(secret)], message[i%len(message)]
		}
		s, m := newDigestSecret(&random), whole[:64*int(hashes)]
		want := naiveDigest(&random, m)
		forEachKernelInline(t, func(kernel string) {
			if got := s.Sum(m); got != want {
				t.Errorf("%s: got %#x, want %#x: %x", kernel, got, want, m)
			}
		})
	})
}

// BenchmarkDigest measures digests of cached messages: of 64 hashes of 16, 32 and 64 bytes.
// BenchmarkEqualPrefix with 64 hashes is the comparison of the bytes.
func BenchmarkDigest(b *testing.B) {
	forEachKernel(b, func(b *testing.B) {
		for _, n := range []int{1024, 2048, 4096} {
			b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
				s, message := NewDigestSecret(), make([]byte, n)
				b.SetBytes(int64(n))
				for b.Loop() {
					digestSink = s.Sum(message)
				}
			})
		}
	})
}
