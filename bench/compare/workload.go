package compare

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/hitline/hitline/bench/workload"
)

// chainSet holds the chains of one number of hashes and their right answers. The same
// seed makes the same ones. Not safe for concurrent use: a request changes the hash at
// which its chain misses, wherever that is held.
type chainSet struct {
	seed       uint64
	hashes     int // a chain
	hashTokens int
	tokens     uint32 // a chain
	blob       []byte // of all chains
	missing    []int  // block at which each chain misses; hashes if it hits whole
	order      []int  // in which the chains are asked for

	// Forms that several clients ask with, made once.
	members  [][]any
	keys     [][]string
	requests map[string]*requestSet
}

// Streams of random numbers, one for each use of the seed.
const (
	streamChains = iota + 1
	streamCuts
	streamOrder
	streamTurns
	streamAbsent
)

// numChains returns how many chains of so many hashes the requests rotate over.
func (o Options) numChains(hashes int) int { return workload.NumChains(hashes, o.Entries, o.Rotate) }

// newWorkload makes chains of random hashes for one number of hashes. The chains hit
// whole until cut.
func newWorkload(o Options, hashes int) *chainSet {
	n := o.numChains(hashes)
	w := &chainSet{
		seed: o.Seed, hashes: hashes, hashTokens: o.HashTokens, tokens: uint32(hashes * o.HashTokens),
		blob: make([]byte, n*hashes*hashLen), missing: make([]int, n), requests: map[string]*requestSet{},
	}
	_, _ = w.chacha(streamChains).Read(w.blob) // never fails
	for i := range w.missing {
		w.missing[i] = hashes
	}
	w.order = w.random(streamOrder).Perm(n)
	return w
}

// chacha returns a source of bytes for one use.
func (w *chainSet) chacha(stream byte) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], w.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(w.hashes))
	key[16] = stream
	return rand.NewChaCha8(key)
}

// random returns a source for one use.
func (w *chainSet) random(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, stream<<32|uint64(w.hashes)))
}

// cut makes all but a share of the chains leave, from a block on, what has been stored:
// as prompts do that differ there. An equal hash after another one would not be a chain,
// and lookups by anchors rely on chains.
func (w *chainSet) cut(share float64, at string) {
	random, fill := w.random(streamCuts), w.chacha(streamAbsent)
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
		w.missing[i] = block
		_, _ = fill.Read(w.chain(i)[block*hashLen:]) // never fails
	}
}

// request is one lookup: a chain, with a hash of its own that nobody has stored at the
// block where the chain misses.
type request struct {
	chain  int
	block  int // where absent goes; the number of hashes if the chain hits whole
	absent [hashLen]byte
}

// request returns the n-th request of the rotation. No two have the same absent hash:
// one that had been asked for before could be in a cache.
func (w *chainSet) request(n int) request {
	chain := w.order[n%w.len()]
	r := request{chain: chain, block: w.missing[chain]}
	if r.block == w.hashes {
		return r
	}
	random := rand.NewPCG(w.seed, streamAbsent<<56|uint64(w.hashes)<<32|uint64(n))
	for i := 0; i < hashLen; i += 8 {
		binary.LittleEndian.PutUint64(r.absent[i:], random.Uint64())
	}
	return r
}

// put writes the request's absent hash into its chain.
func (w *chainSet) put(r request) {
	if r.block < w.hashes {
		copy(w.hash(r.chain, r.block), r.absent[:])
	}
}

// want returns the right answer to a request, in tokens.
func (w *chainSet) want(r request) uint32 { return uint32(r.block * w.hashTokens) }

// hitOf returns the tokens of so many leading blocks.
func (w *chainSet) hitOf(blocks int) uint32 { return uint32(blocks * w.hashTokens) }

func (w *chainSet) len() int { return len(w.missing) }

// chain returns the hashes of a chain, joined.
func (w *chainSet) chain(i int) []byte {
	size := w.hashes * hashLen
	return w.blob[i*size:][:size:size]
}

func (w *chainSet) hash(i, block int) []byte { return w.chain(i)[block*hashLen:][:hashLen:hashLen] }

// strings returns the hashes of a chain, one by one.
func (w *chainSet) strings(i int) []string {
	all := make([]string, w.hashes)
	for block := range all {
		all[block] = string(w.hash(i, block))
	}
	return all
}

// asMembers returns the hashes of all chains as go-redis takes members of a set. They
// share the memory of the chains.
func (w *chainSet) asMembers() [][]any {
	for i := len(w.members); i < w.len(); i++ {
		members := make([]any, w.hashes)
		for block := range members {
			members[block] = w.hash(i, block)
		}
		w.members = append(w.members, members)
	}
	return w.members
}

// asKeys returns the hashes of all chains as go-redis takes keys: copies, into which a
// client puts the absent hash itself.
func (w *chainSet) asKeys() [][]string {
	for i := len(w.keys); i < w.len(); i++ {
		w.keys = append(w.keys, w.strings(i))
	}
	return w.keys
}

// requestSet holds the bytes of one request for each chain. All have the same size,
// and their hashes are at equal distances.
type requestSet struct {
	bytes  []byte
	size   int // of a request
	first  int // where the first hash begins in a request
	stride int // from a hash to the next
	encode func(to, hash []byte)
}

// plainHash is how most forms have a hash.
func plainHash(to, hash []byte) { copy(to, hash) }

// prepared returns the requests in a form. The first call makes them from a template, a
// request with any hashes, in which a hash is its encoding.
func (w *chainSet) prepared(form string, template []byte, first, stride int, encode func(to, hash []byte)) *requestSet {
	if set := w.requests[form]; set != nil {
		return set
	}
	set := &requestSet{bytes: make([]byte, 0, w.len()*len(template)), size: len(template), first: first, stride: stride, encode: encode}
	for i := range w.len() {
		set.bytes = append(set.bytes, template...)
		for block := range w.hashes {
			encode(set.hash(i, block), w.hash(i, block))
		}
	}
	w.requests[form] = set
	return set
}

// request returns the bytes of a chain's request.
func (s *requestSet) request(chain int) []byte { return s.bytes[chain*s.size:][:s.size:s.size] }

// hash returns a chain's request from one of its hashes on.
func (s *requestSet) hash(chain, block int) []byte {
	return s.request(chain)[s.first+block*s.stride:]
}

// put writes the request's absent hash into its chain's bytes, and returns these.
func (s *requestSet) put(r request, hashes int) []byte {
	if r.block < hashes {
		s.encode(s.hash(r.chain, r.block), r.absent[:])
	}
	return s.request(r.chain)
}
