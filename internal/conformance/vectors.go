package conformance

import (
	"crypto/sha256"
	"strconv"
	"strings"
)

// Releases are the folders below releases, oldest first, each named by a release of vLLM. It stands for those
// with equal answers up to the next one.
var Releases = []string{"0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.29.0", "0.30.0", "0.32.0", "0.33.0"}

// UnknownRelease is a release that vLLM does not have.
const UnknownRelease = "999.0.0"

// Newest returns the last of releases that are joined by commas, such as those that a pool fits. Of those with the answers
// of a folder it has all fields of a pool that a case may have.
func Newest(fitting string) string { return fitting[strings.LastIndex(fitting, " ")+1:] }

// Range is a half-open range [start, end) of indexes; it may be empty.
type Range [2]int

// Runs is a mask in the format of the vectors: lengths of alternating runs. The first counts
// False entries; it is 0 if the list starts with True. An empty non-nil Runs is the empty
// list. Nil is the all-True sentinel, if the file allows one.
type Runs []int

// Append appends n entries of value. It extends the last run if that has the same value, so
// it may modify r.
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

// RunsOf returns a list of booleans as Runs, never nil.
func RunsOf(list []bool) Runs {
	r := Runs{}
	for _, value := range list {
		r = r.Append(value, 1)
	}
	return r
}

// Hash returns hash i of the case id: the first hashLen bytes of the SHA-256 of "id:i".
func Hash(id string, i, hashLen int) []byte {
	digest := sha256.Sum256([]byte(id + ":" + strconv.Itoa(i)))
	return digest[:hashLen:hashLen]
}

// Blob returns the hashes 0 to n-1 of the case id end to end.
func Blob(id string, n, hashLen int) []byte {
	blob := make([]byte, 0, n*hashLen)
	for i := range n {
		blob = append(blob, Hash(id, i, hashLen)...)
	}
	return blob
}
