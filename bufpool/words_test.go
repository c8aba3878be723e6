package bufpool

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// wordCounts returns the arguments of GetWords that the tests try: all up to 130, and those
// around each larger power of two.
func wordCounts() []int {
	var counts []int
	for n := range 131 {
		counts = append(counts, n)
	}
	for n := 256; n <= 2<<maxWordsLog2; n *= 2 {
		counts = append(counts, n-1, n, n+1)
	}
	return counts
}

func fill(w []uint64, value uint64) {
	for i := range w {
		w[i] = value
	}
}

// TestWordsAreZero gets every size twice: the second array may be the first one, which was
// released full of ones.
func TestWordsAreZero(t *testing.T) {
	for _, n := range wordCounts() {
		for range 2 {
			w := GetWords(n)
			require.Len(t, w.W, n)
			require.Equal(t, n, cap(w.W), "an append must not write to the array")
			for i, word := range w.W {
				if word != 0 {
					t.Fatalf("%d words: word %d is %#x", n, i, word)
				}
			}
			fill(w.array, ^uint64(0))
			w.Release()
		}
	}
	require.Panics(t, func() { GetWords(-1) })
}

// TestWordsSizes checks the length of the array: the next power of two, which is less than
// twice the request except for the smallest class.
func TestWordsSizes(t *testing.T) {
	for _, n := range wordCounts() {
		w := GetWords(n)
		size := len(w.array)
		switch {
		case n > 1<<maxWordsLog2:
			require.Equal(t, n, size, "too large to be pooled, so it needs no spare words")
		default:
			require.Zero(t, size&(size-1), "%d words: %d is not a power of two", n, size)
			require.GreaterOrEqual(t, size, n)
			require.Less(t, size, max(2*n, 9), "8 words, a cache line, are the smallest")
		}
		w.Release()
	}
	require.Equal(t, 2_097_152, 64<<maxWordsLog2, "the limit as it is documented")
}

// TestWordsAreReused checks which arrays are reused: all up to the limit, even if the owner
// has replaced W.
func TestWordsAreReused(t *testing.T) {
	if Debug {
		t.Skip("debug builds pool nothing")
	}
	reuses := func(n int) bool {
		for range 100 {
			w := GetWords(n)
			first := unsafe.SliceData(w.array)
			w.W = nil
			w.Release()
			if unsafe.SliceData(GetWords(n).array) == first {
				return true
			}
		}
		return false
	}
	require.True(t, reuses(1))
	require.True(t, reuses(100))
	require.True(t, reuses(1<<maxWordsLog2))
	require.False(t, reuses(1<<maxWordsLog2+1))
}

// TestWordsAreNotShared runs many goroutines, each of which must read what it wrote.
func TestWordsAreNotShared(t *testing.T) {
	var wg sync.WaitGroup
	for id := range uint64(8) {
		wg.Go(func() {
			for i := range 500 {
				w, other := GetWords(1+i), GetWords(1+i/2)
				fill(w.W, id)
				fill(other.W, id+100)
				for _, word := range w.W {
					if word != id {
						t.Errorf("goroutine %d: another goroutine wrote %d", id, word)
					}
				}
				w.Release()
				other.Release()
			}
		})
	}
	wg.Wait()
}

func TestWordsDoNotAllocate(t *testing.T) {
	if Debug {
		t.Skip("debug builds pool nothing")
	}
	for _, n := range []int{0, 1, 8, 9, 1000, 1 << maxWordsLog2} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			w := GetWords(n)
			fill(w.W, 1)
			w.Release()
		}), "%d words", n)
	}
}
