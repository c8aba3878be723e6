package indexbench

import (
	"encoding/binary"
	"math/rand/v2"
)

const (
	// ChainLen is how many hashes a chain and a request of the speed and churn
	// measurements have.
	ChainLen = 8192
	// MissLen is how many hashes a request has whose first one is absent.
	MissLen = 131072
	// minHashLen is the shortest length at which random hashes do not repeat.
	minHashLen = 8
	maxHashLen = 64
	maxEntries = 1 << 30
)

// Streams of random bytes that share nothing.
const (
	streamChains = iota
	streamAbsent
	streamOrder
	streamFeed
)

// seed decides all that is drawn: the hashes, and the order of the requests.
type seed uint64

// stream returns random bytes, always the same for the same seed and numbers.
func (s seed) stream(kind, number uint64) *rand.ChaCha8 {
	var key [32]byte
	copy(key[:], "hitbench")
	binary.LittleEndian.PutUint64(key[8:], uint64(s))
	binary.LittleEndian.PutUint64(key[16:], kind)
	binary.LittleEndian.PutUint64(key[24:], number)
	return rand.NewChaCha8(key)
}

// fillChain sets dst to the beginning of a chain.
func (s seed) fillChain(dst []byte, number int) {
	_, _ = s.stream(streamChains, uint64(number)).Read(dst) // documented never to fail
}

// chainCount is how many chains make n entries; the last may be shorter.
func chainCount(n int) int { return (n + ChainLen - 1) / ChainLen }

// part returns the i-th piece of ChainLen hashes.
func part(keys []byte, i, hashLen int) []byte {
	size := ChainLen * hashLen
	return keys[i*size : min((i+1)*size, len(keys))]
}

// allKeys returns the first n hashes of all chains, joined.
func (s seed) allKeys(n, hashLen int) []byte {
	keys := make([]byte, n*hashLen)
	for i := range chainCount(n) {
		s.fillChain(part(keys, i, hashLen), i)
	}
	return keys
}

// shuffled returns the hashes in random order.
func (s seed) shuffled(keys []byte, hashLen int) []byte {
	order := make([]uint32, len(keys)/hashLen)
	for i := range order {
		order[i] = uint32(i)
	}
	rng := rand.New(s.stream(streamOrder, 0))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	mixed := make([]byte, 0, len(keys))
	for _, from := range order {
		mixed = append(mixed, keys[int(from)*hashLen:][:hashLen]...)
	}
	return mixed
}
