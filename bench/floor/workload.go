package floor

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/netproto"
)

// chainSet holds the requests that are rotated over, ready to be written, and
// their right answers. Read-only once it is made.
type chainSet struct {
	seed    uint64 // decides all that is drawn
	size    int    // bytes a request
	head    int    // of which come before the hashes
	bytes   []byte // all requests, in the order of the rotation
	answers []byte // replySize bytes each
	left    []bool // by leave: which chains are cut; nil without
}

// replySize is the size of hitline's answer: a frame of 4 bytes.
const replySize = 2 + 4

// cutEvery is one more than the number of whole chains between two cut ones, on
// average.
const cutEvery = 10

// random returns the numbers that are drawn for a purpose.
func (w *chainSet) random(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, purpose))
}

// bytesFor returns the bytes that are drawn for a purpose.
func (w *chainSet) bytesFor(purpose uint64) *rand.ChaCha8 {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], w.seed)
	binary.BigEndian.PutUint64(seed[8:], purpose)
	return rand.NewChaCha8(seed)
}

// newWorkload makes chains of random hashes. All of them are whole until cut.
func newWorkload(seed uint64, chains, hashes, hashTokens int) *chainSet {
	tokens := uint32(hashes * hashTokens)
	head := netproto.AppendLookup(nil, nil, tokens, hashLen, hashes*hashLen)
	w := &chainSet{seed: seed, size: len(head) + hashes*hashLen, head: len(head)}
	w.bytes = make([]byte, chains*w.size)
	random := w.bytesFor(1)
	for i := range chains {
		request := w.request(i)
		_, _ = random.Read(request[copy(request, head):]) // never fails
		w.answers = netproto.AppendHit(w.answers, nil, tokens)
	}
	return w
}

// cut changes a hash at a random block of a tenth of the chains, which have been
// stored by then, and their answers with it.
func (w *chainSet) cut(hashTokens int) {
	random := w.random(2)
	hashes := (w.size - w.head) / hashLen
	for _, i := range random.Perm(w.len())[:w.len()/cutEvery] {
		at := random.IntN(hashes)
		w.hashes(i)[at*hashLen+random.IntN(hashLen)] ^= 0xFF
		binary.BigEndian.PutUint32(w.answer(i)[replySize-4:], uint32(at*hashTokens))
	}
}

// leave makes half of the chains leave what was stored at a random block: all
// their hashes from there on are others, as when prompts differ there.
func (w *chainSet) leave(hashTokens int) {
	random, fill := w.random(4), w.bytesFor(5)
	w.left = make([]bool, w.len())
	for _, i := range random.Perm(w.len())[:w.len()/2] {
		at := random.IntN((w.size - w.head) / hashLen)
		_, _ = fill.Read(w.hashes(i)[at*hashLen:]) // never fails
		binary.BigEndian.PutUint32(w.answer(i)[replySize-4:], uint32(at*hashTokens))
		w.left[i] = true
	}
}

// tokens returns the right answer of a chain.
func (w *chainSet) tokens(i int) uint32 {
	return binary.BigEndian.Uint32(w.answer(i)[replySize-4:])
}

func (w *chainSet) len() int             { return len(w.bytes) / w.size }
func (w *chainSet) request(i int) []byte { return w.bytes[i*w.size:][:w.size:w.size] }
func (w *chainSet) hashes(i int) []byte  { return w.request(i)[w.head:] }
func (w *chainSet) answer(i int) []byte  { return w.answers[i*replySize:][:replySize:replySize] }

// order returns the chains in the order in which they are asked for.
func (w *chainSet) order() []int { return w.random(3).Perm(w.len()) }

// numChains returns how many chains make at least so many entries, and more than
// so many bytes of cache when each hash is there twice: a multiple of ten.
func numChains(hashes, entries int, cache int64) int {
	return workload.NumChains(hashes, entries, cache/2)
}
