package load

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// chain is what lookups ask for. Read-only once it is made.
type chain struct {
	shape   *shape
	request []byte // the lookup of all of it
	leaves  int    // where a miss leaves it, in hashes
	miss    uint32 // tokens that a miss hits
}

// hashes returns the hashes of the chain, which are the end of its request.
func (c *chain) hashes() []byte { return c.request[len(c.shape.head):] }

// chains are all that is stored before the measuring.
type chains struct {
	all     []chain
	unknown []byte // hashes that nobody stores, one after the other; see absent
	hashes  int    // of all chains
	seed    [32]byte
}

// maxShapes bounds how many lengths a spread is cut into: every length costs the
// heads of its requests, and a few dozen are as good as all.
const maxShapes = 64

// newChains makes chains of at least so many hashes in all, ten at least so that a
// server's caches see more than one, and as many of each length.
func newChains(o Options, s *shaper) (*chains, error) {
	c := &chains{seed: seedOf(o.Seed)}
	random := rand.New(rand.NewChaCha8(c.seed))
	lengths := o.Hashes.quantised()
	var shapes []*shape
	const least = 10
	size := 0
	for c.hashes < o.Entries || len(shapes) < least || len(shapes)%len(lengths) != 0 {
		sh, err := s.shape(lengths[len(shapes)%len(lengths)])
		if err != nil {
			return nil, err
		}
		shapes = append(shapes, sh)
		c.hashes += sh.hashes
		size += sh.size()
	}
	fresh := rand.NewChaCha8(c.derived(1))
	_, most := o.Hashes.bounds()
	c.unknown = make([]byte, (max(c.hashes, leastAbsent)+most)*hashLen)
	fill(c.unknown, fresh)
	c.all = make([]chain, len(shapes))
	room := make([]byte, size) // in one piece, for huge pages
	for i, sh := range shapes {
		var err error
		if c.all[i], err = s.chain(sh, room[:sh.size():sh.size()], o.MissAt.leaves(sh.hashes, random), fresh); err != nil {
			return nil, err
		}
		room = room[sh.size():]
	}
	return c, nil
}

// leastAbsent is the least number of absent hashes: 2 MiB of them, more than a core's own
// caches hold. If more hashes are stored, there are as many absent ones, so that they are
// no warmer in a server's caches.
const leastAbsent = 1 << 16

// absent returns n hashes that nobody stores, from a random place on: each miss asks for
// another first one.
func (c *chains) absent(n int, random *rand.Rand) []byte {
	at := random.IntN(len(c.unknown)/hashLen - n + 1)
	return c.unknown[at*hashLen:][: n*hashLen : n*hashLen]
}

// chain makes a chain of fresh hashes in room, which is as large as a request.
func (s *shaper) chain(sh *shape, room []byte, leaves int, fresh *rand.ChaCha8) (chain, error) {
	fill(room[copy(room, sh.head):], fresh)
	miss, err := s.miss(sh, leaves)
	return chain{shape: sh, request: room, leaves: leaves, miss: miss}, err
}

// leaves returns after how many of n hashes a miss leaves its chain.
func (m MissAt) leaves(n int, random *rand.Rand) int {
	switch m {
	case MissFirst:
		return 0
	case MissMiddle:
		return n / 2
	case MissTail:
		return n - 1
	}
	return random.IntN(n)
}

// quantised returns the lengths to make chains of in turn.
func (l Lengths) quantised() []int {
	if len(l.Each) > 0 {
		return l.Each
	}
	if l.Least == l.Most {
		return []int{l.Least}
	}
	lengths := make([]int, maxShapes)
	ratio := math.Log(float64(l.Most) / float64(l.Least))
	for i := range lengths {
		share := (float64(i) + 0.5) / maxShapes // the middle of its part
		lengths[i] = int(math.Round(float64(l.Least) * math.Exp(ratio*share)))
	}
	lengths[0], lengths[maxShapes-1] = l.Least, l.Most
	return lengths
}

// derived returns a seed for a purpose of its own.
func (c *chains) derived(purpose uint64) [32]byte {
	seed := c.seed
	binary.LittleEndian.PutUint64(seed[24:], purpose)
	return seed
}

// seedOf returns the salt of the run's hashes.
func seedOf(n uint64) (seed [32]byte) {
	binary.LittleEndian.PutUint64(seed[:], n)
	return seed
}

// fill fills b with random bytes.
func fill(b []byte, source *rand.ChaCha8) { _, _ = source.Read(b) } // never fails

// numParts returns how many requests store all chains.
func (c *chains) numParts() int {
	n := 0
	for i := range c.all {
		n += len(c.all[i].shape.parts)
	}
	return n
}
