package coordinator

import "encoding/hex"

// KeyStore is an external store in which a lookup checks keys. A lookup calls it from its
// own goroutine only.
type KeyStore interface {
	// Reserve is called before the keys of a call of Exists are built. bytes is the
	// memory that the call needs for its keys, a copy of their text and its answers: a
	// few bytes of hashes can make a thousand times as many of keys. The reservation
	// replaces the one before. If it fails, no key is built, and the lookup goes on as
	// if Exists had failed.
	Reserve(bytes int64) error
	// Exists returns one number for each key: 1 is present, anything else absent. It may leave out
	// the last ones: those from keys.End(i) on if key i is absent. They count as not asked.
	Exists(keys *Keys) ([]int, error)
	// Expected returns how many leading hashes of the lookup are likely to be stored. So many more are asked for at once.
	Expected() int
	// Remembered returns the blocks that calls before have found on all ranks. Their keys are not asked for. blocks
	// has a bit for each block of group g in question: the hash of bit i is hashes.At(first + i*stride). hashes are
	// those of the lookup, borrowed.
	Remembered(g int, hashes Hashes, first, stride int, blocks uint64) uint64
	// Remember is called with the blocks, as in Remembered, that the last call of Exists has found on all ranks.
	Remember(g int, hashes Hashes, first, stride int, blocks uint64)
}

// RemembersNothing is what a KeyStore embeds that has to be asked for all keys.
type RemembersNothing struct{}

// Expected implements KeyStore.
func (RemembersNothing) Expected() int { return 0 }

// Remembered implements KeyStore.
func (RemembersNothing) Remembered(int, Hashes, int, int, uint64) uint64 { return 0 }

// Remember implements KeyStore.
func (RemembersNothing) Remember(int, Hashes, int, int, uint64) {}

// ExistsFunc is a KeyStore that reserves nothing, and answers the text of keys.
type ExistsFunc func(keys []string) ([]int, error)

// Reserve returns nil.
func (f ExistsFunc) Reserve(int64) error { return nil }

// Exists calls f.
func (f ExistsFunc) Exists(keys *Keys) ([]int, error) { return f(keys.Strings()) }

// Expected returns 0.
func (f ExistsFunc) Expected() int { return 0 }

// Remembered returns none.
func (f ExistsFunc) Remembered(int, Hashes, int, int, uint64) uint64 { return 0 }

// Remember does nothing.
func (f ExistsFunc) Remember(int, Hashes, int, int, uint64) {}

// KeyBytes returns what a key takes in KeyStore.Reserve: its text and a copy of it, which a store sends, its string header
// and its answer.
func KeyBytes(prefix string, hashLen int) int64 {
	const header, answer = 16, 8
	return int64(2*(len(prefix)+hex.EncodedLen(hashLen)) + header + answer)
}
