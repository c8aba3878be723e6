package bufpool

import (
	"math/bits"
	"sync"
)

const (
	// minWordsLog is the base-2 logarithm of the smallest array in words: 8 words are one
	// cache line, and below that there is nothing to save.
	minWordsLog = 3

	// maxWordsLog is the same of the largest one that is kept: 2,097,152 bits, which is the
	// largest number of hashes that one lookup may have by default.
	maxWordsLog = 21 - 6

	// wordClasses is the number of sizes: each power of two between the two.
	wordClasses = maxWordsLog - minWordsLog + 1
)

// words has one pool for each size. Sizes are powers of two, so at most half of an array is
// unused, and any array of a class serves every request of that class.
var words [wordClasses]sync.Pool

// Words is a slice of 64-bit words, such as a bitset, on loan from the pool. The package
// documentation says who owns it and for how long.
type Words struct {
	// W is the slice. The owner may write to its elements and reslice it. Its capacity is
	// its length, so that an append copies and does not spill into words that were not
	// asked for.
	W []uint64

	// array is all of the memory, whatever has become of W. It is set when it is allocated
	// and never changes. Its length is a power of two if it can be kept.
	array []uint64
}

// GetWords returns n words, all of them 0, which belong to the caller until Release. To
// hold k bits, ask for (k+63)/64. It panics if n is negative.
//
// More than 32,768 words (2,097,152 bits) are allocated and not kept afterwards.
func GetWords(n int) *Words {
	w := lendWords(n)
	w.W = w.array[:n:n]
	clear(w.W)
	return w
}

// lendWords returns an array of n words or more with anything in them.
func lendWords(n int) *Words {
	class := wordsClass(n)
	if class >= wordClasses {
		return &Words{array: make([]uint64, n)}
	}
	if !Debug { // in debug builds nothing is ever lent twice, see Release
		if w, ok := words[class].Get().(*Words); ok {
			return w
		}
	}
	return &Words{array: make([]uint64, 1<<(minWordsLog+class))}
}

// Release gives the words back. Neither w, nor w.W, nor any other slice of the same array
// may be used after it. In debug builds the array is overwritten, and a second call panics.
func (w *Words) Release() {
	if Debug {
		releasedWords.add(w)
		poisonWords(w.array)
		return
	}
	class := wordsClass(len(w.array))
	if class >= wordClasses {
		return
	}
	words[class].Put(w)
}

// wordsClass returns the class of the smallest arrays that have n words, which is
// wordClasses or more if there is none.
func wordsClass(n int) int {
	if n <= 1<<minWordsLog {
		return 0
	}
	return bits.Len(uint(n-1)) - minWordsLog
}
