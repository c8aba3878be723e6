package conformance

import (
	"crypto/sha256"
	"strconv"
)

// Range is a half-open range [start, end) of indexes; it may be empty.
type Range [2]int

// Runs is a mask as the vectors write it: lengths of alternating runs, the
// first counting False entries (0 if the list starts with True). An empty
// non-nil Runs is the empty list; nil stands for the all-True sentinel where a
// file allows one.
type Runs []int

// Append adds n entries of the given value, merging with the last run.
func (r Runs) Append(value bool, n int) Runs {
	switch {
	case n == 0:
		return r
	case len(r) == 0 && value:
		return append(r, 0, n)
	case len(r) > 0 && (len(r)%2 == 0) == value:
		r[len(r)-1] += n
		return r
	}
	return append(r, n)
}

// RunsOf returns the runs of a list of booleans, never nil.
func RunsOf(list []bool) Runs {
	r := Runs{}
	for _, value := range list {
		r = r.Append(value, 1)
	}
	return r
}

// Bools returns the list that r stands for, never nil.
func (r Runs) Bools() []bool {
	list := []bool{}
	for i, n := range r {
		for range n {
			list = append(list, i%2 == 1)
		}
	}
	return list
}

// Hash returns hash i of the case id: the first hashLen bytes of the SHA-256 of
// the text "id:i".
func Hash(id string, i, hashLen int) []byte {
	sum := sha256.Sum256([]byte(id + ":" + strconv.Itoa(i)))
	return sum[:hashLen:hashLen]
}

// Blob returns hashes 0 to n-1 of the case id, joined. Entry {"j": i} of dupOf
// (nil for none) replaces hash j by the original hash i.
func Blob(id string, n, hashLen int, dupOf map[string]int) []byte {
	blob := make([]byte, 0, n*hashLen)
	for i := range n {
		source := i
		if from, ok := dupOf[strconv.Itoa(i)]; ok {
			source = from
		}
		blob = append(blob, Hash(id, source, hashLen)...)
	}
	return blob
}
