package simd

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guardedPages returns at least n readable bytes between two unreadable pages: a load just
// before the first byte or just after the last one crashes the test. whole includes the two
// pages.
func guardedPages(t *testing.T, n int) (readable, whole []byte) {
	t.Helper()
	page := os.Getpagesize()
	n = (n + page - 1) / page * page
	whole, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(whole)) })
	require.NoError(t, unix.Mprotect(whole[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(whole[page+n:], unix.PROT_NONE))
	return whole[page : page+n : page+n], whole
}

// TestEqualPrefixGuardPages compares arrays of every length that begin right after an
// unreadable page or end right before one, in all four combinations, equal and with a
// difference in the first byte, the last one and the middle.
func TestEqualPrefixGuardPages(t *testing.T) {
	memA, _ := guardedPages(t, maxTestLen)
	memB, _ := guardedPages(t, maxTestLen)
	ends := map[string]func(mem []byte, n int) []byte{
		"head": func(mem []byte, n int) []byte { return mem[:n] },
		"tail": func(mem []byte, n int) []byte { return mem[len(mem)-n:] },
	}
	forEachKernel(t, func(t *testing.T) {
		_, source := newTestRand(t)
		for nameA, endA := range ends {
			for nameB, endB := range ends {
				for n := range maxTestLen + 1 {
					a, b := endA(memA, n), endB(memB, n)
					source.Read(a)
					copy(b, a)
					for _, hashLen := range []int{1, 7, 16, 20, 32, 64} {
						if got := EqualPrefix(a, b, hashLen); got != n/hashLen {
							t.Fatalf("%s and %s, length %d, hash length %d: got %d", nameA, nameB, n, hashLen, got)
						}
					}
					if n == 0 {
						continue
					}
					for _, at := range []int{0, n / 2, n - 1} {
						b[at] ^= 4
						if got := EqualPrefix(a, b, 1); got != at {
							t.Fatalf("%s and %s, length %d: got %d, want %d", nameA, nameB, n, got, at)
						}
						b[at] = a[at]
					}
				}
			}
		}
	})
}

// TestEqualPrefixPartialHash puts only the whole hashes into readable memory. A partial hash
// after them, and the rest of the longer array, lie in the unreadable page.
func TestEqualPrefixPartialHash(t *testing.T) {
	page := os.Getpagesize()
	readable, whole := guardedPages(t, maxTestLen)
	forEachKernel(t, func(t *testing.T) {
		for hashLen := 2; hashLen <= 66; hashLen++ {
			for n := hashLen; n <= maxTestLen; n += hashLen {
				for _, more := range []int{1, hashLen / 2, hashLen - 1} {
					end := page + len(readable)
					a := whole[end-n : end+more]
					b := make([]byte, n+more)
					copy(b, a[:n])
					if got := EqualPrefix(a, b, hashLen); got != n/hashLen {
						t.Fatalf("hash length %d, %d+%d bytes: got %d, want %d", hashLen, n, more, got, n/hashLen)
					}
				}
				a, b := whole[page+len(readable)-n:], make([]byte, n)
				copy(b, a[:n])
				if got := EqualPrefix(a, b, hashLen); got != n/hashLen {
					t.Fatalf("hash length %d, %d bytes against more: got %d, want %d", hashLen, n, got, n/hashLen)
				}
			}
		}
	})
}

// TestMatchTagsGuardPages lets the tags of a bucket, the bucket pointers, the tags and the
// masks each begin right after an unreadable page or end right before one. Of a
// bucket only the tags are readable.
func TestMatchTagsGuardPages(t *testing.T) {
	memMasks, _ := guardedPages(t, 1)
	memTags, _ := guardedPages(t, 1)
	memBuckets, _ := guardedPages(t, 1)
	bucketMem, _ := guardedPages(t, 1)
	masks := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(memMasks))), len(memMasks)/2)
	tags := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(memTags))), len(memTags)/2)
	// The pointers are to memory outside of the Go heap, so they may be stored outside of it
	// too.
	pointers := unsafe.Slice((**[BucketTags]uint16)(unsafe.Pointer(unsafe.SliceData(memBuckets))), len(memBuckets)/8)
	first := (*[BucketTags]uint16)(unsafe.Pointer(&bucketMem[0]))
	last := (*[BucketTags]uint16)(unsafe.Pointer(&bucketMem[len(bucketMem)-2*BucketTags]))
	for k := range BucketTags {
		first[k], last[k] = uint16(k), uint16(k+5)
	}
	forEachKernel(t, func(t *testing.T) {
		for n := 1; n <= 66; n++ {
			for end := range 2 {
				at := func(length int) int { return end * (length - n) }
				m, b, w := masks[at(len(masks)):][:n], pointers[at(len(pointers)):][:n], tags[at(len(tags)):][:n]
				for i := range n {
					b[i], w[i] = first, uint16(i%16)
					if i%2 == 1 {
						b[i] = last
					}
				}
				MatchTags(m, b, w)
				require.Equal(t, naiveMatchTags(b, w), m)
			}
		}
	})
}

// TestDigestGuardPages digests messages of every length that begin right after an unreadable
// page or end right before one. The secret ends right before another.
func TestDigestGuardPages(t *testing.T) {
	mem, _ := guardedPages(t, MaxDigestBytes)
	memSecret, _ := guardedPages(t, MaxDigestBytes)
	words := (*[MaxDigestBytes / 8]uint64)(unsafe.Pointer(&memSecret[len(memSecret)-MaxDigestBytes]))
	forEachKernel(t, func(t *testing.T) {
		_, source := newTestRand(t)
		s, _ := randomDigestSecret(source)
		*words = s.words
		for n := 64; n <= MaxDigestBytes; n += 64 {
			for _, message := range [][]byte{mem[:n], mem[len(mem)-n:]} {
				source.Read(message)
				var got, want [4]uint64
				sumProducts(&got, words, message)
				sumProductsGeneric(&want, words, message)
				if got != want {
					t.Fatalf("%d bytes: got %#x, want %#x", n, got, want)
				}
			}
		}
	})
}

// TestPrefetchGuardPages prefetches unreadable lines, from lists of every length up to 70 that
// end right before an unreadable page or begin right after one.
func TestPrefetchGuardPages(t *testing.T) {
	const most = 70
	mem, whole := guardedPages(t, most*8)
	forEachKernel(t, func(t *testing.T) {
		for n := range most + 1 {
			for _, b := range [][]byte{mem[:n*8], mem[len(mem)-n*8:]} {
				lines := unsafe.Slice((**byte)(unsafe.Pointer(unsafe.SliceData(b))), n)
				for i := range lines {
					lines[i] = &whole[(len(whole)-1)*(i%2)]
				}
				Prefetch(lines)
				for i, line := range lines {
					require.Same(t, &whole[(len(whole)-1)*(i%2)], line)
				}
			}
		}
	})
}
