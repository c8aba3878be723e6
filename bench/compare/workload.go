package compare

import (
	"math"
	"math/rand/v2"
)

// workload holds chains of one number of hashes and their right answers. Read-only
// once it is cut.
type workload struct {
	hashes int // a chain
	tokens uint32
	blob   []byte   // of all chains
	want   []uint32 // the hit of each chain, in tokens
	order  []int    // in which they are asked for
}

// newWorkload makes chains of random hashes, at least so many entries, which all
// are whole until cut. The number of hashes makes them others than those of
// another workload.
func newWorkload(hashes, hashTokens, entries int) *workload {
	chains := max(MinChains, (entries+hashes-1)/hashes)
	w := &workload{hashes: hashes, tokens: uint32(hashes * hashTokens), blob: make([]byte, chains*hashes*hashLen)}
	_, _ = rand.NewChaCha8([32]byte{byte(hashes), byte(hashes >> 8), byte(hashes >> 16), 1}).Read(w.blob) // never fails
	w.want = make([]uint32, chains)
	for i := range w.want {
		w.want[i] = w.tokens
	}
	w.order = rand.New(rand.NewPCG(3, 3)).Perm(chains)
	return w
}

// cut changes a hash of all but a share of the chains, which have been stored by
// then, and their answers with it.
func (w *workload) cut(share float64, at string, hashTokens int) {
	random := rand.New(rand.NewPCG(2, 2))
	cuts := int(math.Ceil((1-share)*float64(w.len()) - 1e-9)) // 0.1 of 10 is 1
	for _, i := range random.Perm(w.len())[:cuts] {
		block := 0
		switch at {
		case MissMiddle:
			block = w.hashes / 2
		case MissTail:
			block = w.hashes - 1
		case MissRandom:
			block = random.IntN(w.hashes)
		}
		w.hash(i, block)[random.IntN(hashLen)] ^= 0xFF
		w.want[i] = uint32(block * hashTokens)
	}
}

func (w *workload) len() int { return len(w.want) }

// chain returns the hashes of a chain, joined.
func (w *workload) chain(i int) []byte {
	size := w.hashes * hashLen
	return w.blob[i*size:][:size:size]
}

func (w *workload) hash(i, block int) []byte { return w.chain(i)[block*hashLen:][:hashLen:hashLen] }

// strings returns the hashes of a chain, one by one.
func (w *workload) strings(i int) []string {
	all := make([]string, w.hashes)
	for block := range all {
		all[block] = string(w.hash(i, block))
	}
	return all
}
