package coordinator

import "math/bits"

// resize returns s with n elements. The values of added ones are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// SetBits sets the bits [from, to).
func SetBits(set []uint64, from, to int) {
	if from >= to {
		return
	}
	first, last := from/64, (to-1)/64
	head, tail := ^uint64(0)<<(from%64), ^uint64(0)>>(63-(to-1)%64)
	if first == last {
		set[first] |= head & tail
		return
	}
	set[first] |= head
	set[last] |= tail
	for i := range set[first+1 : last] {
		set[first+1+i] = ^uint64(0)
	}
}

// lowBits returns a word with the lowest n bits set, all for n >= 64, none for n <= 0.
func lowBits(n int) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<max(0, n) - 1
}

// firstBit returns the lowest bit that is set, 64 for each word if none is.
func firstBit(set []uint64) int {
	for w, word := range set {
		if word != 0 {
			return 64*w + bits.TrailingZeros64(word)
		}
	}
	return 64 * len(set)
}

// countBits returns the number of bits set.
func countBits(set []uint64) int {
	n := 0
	for _, word := range set {
		n += bits.OnesCount64(word)
	}
	return n
}

// keepFirst clears all set bits but the first n. It returns the number of bits left set.
func keepFirst(set []uint64, n int) int {
	kept := 0
	for w, word := range set {
		rest := word
		for ; rest != 0 && kept < n; kept++ {
			rest &= rest - 1
		}
		set[w] = word &^ rest
	}
	return kept
}
