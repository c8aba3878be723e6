package simd

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guarded returns readable bytes, at least n of them, between two pages that nobody may
// read: a load just before the first byte or just behind the last one kills the test. whole
// is the same memory with the two pages.
func guarded(t *testing.T, n int) (readable, whole []byte) {
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

// TestEqualPrefixGuardPages compares arrays of every length that begin right behind an
// unreadable page or end right before one, in all four combinations, equal and with a
// difference in the first byte, the last one and the middle.
func TestEqualPrefixGuardPages(t *testing.T) {
	memA, _ := guarded(t, maxTestLen)
	memB, _ := guarded(t, maxTestLen)
	ends := map[string]func(mem []byte, n int) []byte{
		"head": func(mem []byte, n int) []byte { return mem[:n] },
		"tail": func(mem []byte, n int) []byte { return mem[len(mem)-n:] },
	}
	eachKernel(t, func(t *testing.T) {
		_, source := seeded(t)
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

// TestEqualPrefixPartialHash lets only the whole hashes be readable: a partial one behind
// them, and whatever the longer array has more, lies in the unreadable page.
func TestEqualPrefixPartialHash(t *testing.T) {
	page := os.Getpagesize()
	readable, whole := guarded(t, maxTestLen)
	eachKernel(t, func(t *testing.T) {
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
