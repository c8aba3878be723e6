package workload

import (
	"encoding/binary"
	"math/rand/v2"
)

// Seed decides all that is drawn.
type Seed uint64

// Bytes returns a source of random bytes for a purpose, which two numbers name. Sources
// for different purposes share nothing. Its Read never fails.
func (s Seed) Bytes(purpose, number uint64) *rand.ChaCha8 {
	var key [32]byte
	copy(key[:], "hitbench")
	binary.LittleEndian.PutUint64(key[8:], uint64(s))
	binary.LittleEndian.PutUint64(key[16:], purpose)
	binary.LittleEndian.PutUint64(key[24:], number)
	return rand.NewChaCha8(key)
}

// Rand returns a source of random numbers for a purpose, as Bytes does.
func (s Seed) Rand(purpose, number uint64) *rand.Rand { return rand.New(s.Bytes(purpose, number)) }

// PutHash writes the hash of a block to dst, or the last bytes of it if dst is shorter
// than HashLen: a multiple of 8. Blocks are named by the segment that they belong to, such as a
// document, and their number in it. It takes some 10 ns, so that hashes need not be kept.
func (s Seed) PutHash(dst []byte, segment uint64, block int) {
	random := rand.NewPCG(uint64(s)^segment<<24, segment<<32|uint64(block))
	for end := len(dst); end > 0; end -= 8 {
		binary.BigEndian.PutUint64(dst[end-8:], random.Uint64())
	}
}
