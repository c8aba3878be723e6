package simd

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// MaxDigestBytes is the length of the longest message that [DigestSecret.Sum] accepts.
const MaxDigestBytes = 4096

// digestChunk is the number of bytes of a message that are multiplied with each other: each
// of the first four words of 128 bits with one of the last four.
const digestChunk = 128

// Digest is what DigestSecret.Sum returns: 128 bits. Digests are compared by ==.
type Digest struct{ Low, High uint64 }

// Equal reports whether two digests are equal. The time it takes does not depend on their bits.
func (d Digest) Equal(other Digest) bool { return (d.Low^other.Low)|(d.High^other.High) == 0 }

// DigestSecret is the random key of a keyed digest. It reports whether two messages of one
// length are equal without the bytes of both: different messages have one digest with
// probability 2^-128. Sum may be called by several goroutines at a time.
//
// # Definition
//
// Words of 128 bits, stored with the lowest byte first, are elements of the field GF(2^128)
// of polynomials over GF(2) modulo x^128 + x^7 + x^2 + x + 1. Bit i is the coefficient of
// x^i, and + is the exclusive or. The message is filled with zeros to a multiple of eight
// words w0, w1, …. The secret has a random word k0, k1, … for each. The digest is the sum,
// over every eight words, of four products:
//
//	(w0+k0)(w4+k4) + (w1+k1)(w5+k5) + (w2+k2)(w6+k6) + (w3+k3)(w7+k7)
//
// This is the function NH of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway, CRYPTO
// 1999) in the field in place of integers. Lemire and Kaser use 64-bit words, as CLNH
// (Faster 64-bit universal hashing using carry-less multiplications, 2016).
//
// # Probability of an error
//
// Take two different messages of one length. They differ in some word, say w0: other words
// are alike, with their own partner. Choose all of the secret but k4, in any way. The two
// digests then differ by d*k4 + c, where d is the difference of the two w0, which is not 0,
// and c does not depend on k4. The field has one k4 of 2^128 for which that is 0. Zeros at
// the end of a message are words like others, and k4 is random even if w4 is such a word.
//
// A peer may choose messages by the outcome of earlier comparisons. That does not help: while
// no comparison was wrong, each outcome was what a comparison of the bytes has, so the peer
// learned nothing about the secret. All pairs up to the first wrong one are thus independent
// of it. The probability that one of n comparisons is wrong is at most n * 2^-128.
//
// That needs four things. The secret is random. Neither it nor a digest leaves the process.
// Only digests of one length are compared. The time of a call does not depend on the bytes:
// no kernel has a branch or an address that does.
type DigestSecret struct {
	// The allocator aligns an object of this size to 4096 bytes, so no load of a word crosses
	// a cache line.
	words [MaxDigestBytes / 8]uint64
}

// NewDigestSecret returns a secret from the system's random numbers.
func NewDigestSecret() *DigestSecret {
	var random [MaxDigestBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return newDigestSecret(&random)
}

func newDigestSecret(random *[MaxDigestBytes]byte) *DigestSecret {
	s := new(DigestSecret)
	for i := range s.words {
		s.words[i] = binary.LittleEndian.Uint64(random[8*i:])
	}
	return s
}

// FastDigest reports whether the kernel in use multiplies polynomials by an instruction of the
// processor. If not, a digest takes far longer than a comparison of the bytes.
func FastDigest() bool { return fastDigest() }

// Sum returns the digest of message, which is only borrowed. All kernels return the same. Sum
// panics if the length of message is not a multiple of 64, or is more than MaxDigestBytes.
func (s *DigestSecret) Sum(message []byte) Digest {
	if len(message)%(digestChunk/2) != 0 || len(message) > MaxDigestBytes {
		panic(fmt.Sprintf("simd: digest of %d bytes: pass a multiple of 64, at most %d", len(message), MaxDigestBytes))
	}
	if len(message) == 0 {
		return Digest{}
	}
	var sum [4]uint64
	sumProducts(&sum, &s.words, message)
	return reduce(&sum)
}

// reduce returns the polynomial sum modulo x^128 + x^7 + x^2 + x + 1. The degree of sum is at
// most 254.
func reduce(sum *[4]uint64) Digest {
	// x^128 is x^7 + x^2 + x + 1. So the upper half is added to the lower one four times,
	// shifted by 7, 2, 1 and 0. What the shifts move out at the top has at most 7 bits and is
	// added in the same way, first.
	low, high := sum[2], sum[3]
	low ^= high>>63 ^ high>>62 ^ high>>57
	return Digest{
		Low:  sum[0] ^ low ^ low<<1 ^ low<<2 ^ low<<7,
		High: sum[1] ^ high ^ (high<<1 | low>>63) ^ (high<<2 | low>>62) ^ (high<<7 | low>>57),
	}
}

// sumProductsGeneric sets sum to the sum of the products, which is not reduced. It is the
// portable kernel. The length of message is a multiple of 64 and not 0.
func sumProductsGeneric(sum *[4]uint64, secret *[MaxDigestBytes / 8]uint64, message []byte) {
	*sum = [4]uint64{}
	var chunk [digestChunk / 8]uint64
	for at := 0; at < len(message); at += digestChunk {
		for i := range chunk {
			chunk[i] = secret[at/8+i]
			if at+8*i < len(message) {
				chunk[i] ^= binary.LittleEndian.Uint64(message[at+8*i:])
			}
		}
		for i := 0; i < len(chunk)/2; i += 2 {
			x0, x1, y0, y1 := chunk[i], chunk[i+1], chunk[i+8], chunk[i+9]
			// Three products of 64 bits make one of 128 bits (Karatsuba).
			low0, low1 := multiply(x0, y0)
			high0, high1 := multiply(x1, y1)
			middle0, middle1 := multiply(x0^x1, y0^y1)
			sum[0] ^= low0
			sum[1] ^= low1 ^ middle0 ^ low0 ^ high0
			sum[2] ^= high0 ^ middle1 ^ low1 ^ high1
			sum[3] ^= high1
		}
	}
}

// multiply returns the product of two polynomials over GF(2).
func multiply(x, y uint64) (low, high uint64) {
	// A product of reversed polynomials is the reversed product: its lower half has the upper
	// half of the product, one bit further.
	return multiplyLow(x, y), bits.Reverse64(multiplyLow(bits.Reverse64(x), bits.Reverse64(y))) >> 1
}

// multiplyLow returns the lower half of the product of two polynomials over GF(2).
//
// It multiplies integers of which only every fourth bit is set. Their product has sums of at
// most 16 ones at every fourth bit. The lowest bit of each sum is what is wanted. The others
// are masked out: they reach only the three bits above, but for the sum of 16, which is at
// the top. (BearSSL multiplies in this way: www.bearssl.org/constanttime.html#ghash-for-gcm.)
func multiplyLow(x, y uint64) uint64 {
	const m0 = 0x1111_1111_1111_1111
	const m1, m2, m3 = m0 << 1, m0 << 2, m0 << 3
	x0, x1, x2, x3 := x&m0, x&m1, x&m2, x&m3
	y0, y1, y2, y3 := y&m0, y&m1, y&m2, y&m3
	return (x0*y0^x1*y3^x2*y2^x3*y1)&m0 |
		(x0*y1^x1*y0^x2*y3^x3*y2)&m1 |
		(x0*y2^x1*y1^x2*y0^x3*y3)&m2 |
		(x0*y3^x1*y2^x2*y1^x3*y0)&m3
}
