package bufpool

import (
	"math/bits"
	"sync"

	"golang.org/x/sys/cpu"
)

const (
	// minWordsLog2 is the base-2 logarithm of the smallest array, in words. 8 words are one
	// cache line; smaller arrays would save nothing.
	minWordsLog2 = 3

	// maxWordsLog2 is that of the largest array that is pooled. It has 2,097,152 bits, one for
	// each hash of the largest lookup that the service accepts by default.
	maxWordsLog2 = 21 - 6

	// numWordsClasses is the number of size classes, one for each power of two.
	numWordsClasses = maxWordsLog2 - minWordsLog2 + 1
)

// wordPools has one pool for each size class. Classes are powers of two, so at most half of
// an array is unused, and an array serves every request of its class.
var wordPools [numWordsClasses]sync.Pool

// Words is a slice of 64-bit words from the pool, such as a bitset. The package
// documentation has the rules of ownership.
type Words struct {
	// W is the slice. The owner may write its elements and reslice it. Its capacity is its
	// length, so that an append copies instead of writing to the rest of the array.
	W []uint64

	// array is the whole allocation, even if the owner replaces W. It never changes. Its
	// length is a power of two if it can be pooled.
	array []uint64

	_ cpu.CacheLinePad // owners on other cores write to other cache lines
}

// GetWords returns n zero words, which belong to the caller until Release. A bitset of k
// bits needs (k+63)/64 words. It panics if n is negative.
//
// More than 32,768 words (2,097,152 bits) are allocated and not pooled afterwards.
func GetWords(n int) *Words {
	w := getWords(n)
	w.W = w.array[:n:n]
	clear(w.W)
	return w
}

// getWords returns Words whose array has at least n words of any content. W is not set.
func getWords(n int) *Words {
	class := wordsSizeClass(n)
	if class >= numWordsClasses {
		return &Words{array: make([]uint64, n)}
	}
	if !Debug { // released memory is never reused, see Release
		if w, ok := wordPools[class].Get().(*Words); ok {
			return w
		}
	}
	return &Words{array: make([]uint64, 1<<(minWordsLog2+class))}
}

// Release ends the ownership of w. Afterwards neither w, nor w.W, nor any other slice of the
// same array may be used. In debug builds it overwrites the array, and panics if w is
// already released.
func (w *Words) Release() {
	if Debug {
		releasedWords.record(w)
		poisonWords(w.array)
		return
	}
	class := wordsSizeClass(len(w.array))
	if class >= numWordsClasses {
		return
	}
	wordPools[class].Put(w)
}

// wordsSizeClass returns the class of the smallest array that holds n words. It returns
// numWordsClasses or more if no pooled array does.
func wordsSizeClass(n int) int {
	if n <= 1<<minWordsLog2 {
		return 0
	}
	return bits.Len(uint(n-1)) - minWordsLog2
}
