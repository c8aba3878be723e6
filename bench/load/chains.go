package load

import (
	"math"
	"math/rand/v2"

	"github.com/hitline/hitline/bench/workload"
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

// piece returns what stores the chain.
func (c *chain) piece() piece { return piece{c.hashes(), c.shape.parts} }

// chains are all that is stored before the measuring.
type chains struct {
	all     []chain
	unknown []byte // hashes that nobody stores, one after the other; see absent
	hashes  int    // of all chains
	seed    workload.Seed
}

// Purposes of random numbers.
const (
	forChains = workload.ForOthers + iota
	forHashes
	forProbe // of what the server is asked to learn about it
	forMix   // and for mixes of other connections, by their numbers
)

// maxShapes bounds how many lengths a spread is cut into: every length costs the
// heads of its requests, and a few dozen are as good as all.
const maxShapes = 64

// newChains makes chains of at least so many hashes in all, ten at least so that a
// server's caches see more than one, and as many of each length.
func newChains(o Options, s *shaper) (*chains, error) {
	c := &chains{seed: workload.Seed(o.Seed)}
	random := c.seed.Rand(forChains, 0)
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
	fresh := c.seed.Bytes(forHashes, 0)
	c.unknown = make([]byte, (max(c.hashes, leastAbsent)+o.Hashes.Most)*hashLen)
	_, _ = fresh.Read(c.unknown) // never fails
	c.all = make([]chain, len(shapes))
	room := make([]byte, size) // in one piece, for huge pages
	for i, sh := range shapes {
		var err error
		if c.all[i], err = s.chain(sh, room[:sh.size():sh.size()], o.MissAt.Block(sh.hashes, random), fresh); err != nil {
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
	_, _ = fresh.Read(room[copy(room, sh.head):]) // never fails
	miss, err := s.miss(sh, leaves)
	return chain{shape: sh, request: room, leaves: leaves, miss: miss}, err
}

// quantised returns the lengths to make chains of in turn.
func (l Lengths) quantised() []int {
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

// stored returns what is stored beforehand.
func (c *chains) stored() []piece {
	pieces := make([]piece, len(c.all))
	for i := range c.all {
		pieces[i] = c.all[i].piece()
	}
	return pieces
}
