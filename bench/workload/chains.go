package workload

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

const (
	// minChains is the least number of chains, whatever their size.
	minChains = 20
	// chainMultiple divides every number of chains, so that a tenth of them
	// is a whole number.
	chainMultiple = 10
)

// NumChains returns the number of chains of the given number of hashes: at least
// minChains, with at least the given entries (hashes) together, and with more than the
// given bytes of hashes together.
func NumChains(hashes, entries int, bytes int64) int {
	n := max(minChains, (entries+hashes-1)/hashes, int(bytes/int64(HashLen*hashes))+1)
	return (n + chainMultiple - 1) / chainMultiple * chainMultiple
}

// ChainOptions says which chains to make.
type ChainOptions struct {
	Chains    int // how many; see NumChains
	Hashes    int // of each
	BlockSize int // tokens that one hash covers
	Seed      Seed
}

// Chains are chains of random hashes, all of one length, which a server stores whole and
// is then asked for in rotation: in a random order that stays the same, so that a chain
// comes again only after all others.
//
// After Cut some lookups miss: from a block of its own on, such a chain asks for hashes
// that nobody has stored, as a prompt does that differs there from an earlier one. It
// does not come back to stored hashes. What is asked for
// at that block is another hash in every request ([Lookup.Absent]), for one that was
// asked for before may be in a cache.
//
// Equal options make equal chains; those of different lengths share no hash. Not safe for
// concurrent use: Put changes a chain.
type Chains struct {
	o      ChainOptions
	hashes []byte // of all chains, joined
	stored []int  // leading hashes of each chain that lookups hit
	order  []int  // of the rotation
}

// Purposes of random numbers.
const (
	forChains = iota + 1
	forCuts
	forOrder
	forAbsent
	// ForOthers is the first purpose that this package does not use itself.
	ForOthers
)

// NewChains makes chains, all of which hit whole.
func NewChains(o ChainOptions) *Chains {
	c := &Chains{o: o, hashes: make([]byte, o.Chains*o.Hashes*HashLen), stored: make([]int, o.Chains)}
	_, _ = c.bytes(forChains).Read(c.hashes) // never fails
	for i := range c.stored {
		c.stored[i] = o.Hashes
	}
	c.order = c.Rand(forOrder).Perm(o.Chains)
	return c
}

func (c *Chains) bytes(purpose uint64) *rand.ChaCha8 {
	return c.o.Seed.Bytes(purpose, uint64(c.o.Hashes))
}

// Rand returns a source of random numbers of these chains for a purpose, from [ForOthers] on.
func (c *Chains) Rand(purpose uint64) *rand.Rand { return rand.New(c.bytes(purpose)) }

// Cut makes all but a share of the chains miss, from a random block on: the chains are stored
// before and asked for afterwards. It is called once.
func (c *Chains) Cut(hitShare float64) {
	random, absent := c.Rand(forCuts), c.bytes(forAbsent)
	cuts := int(math.Ceil((1-hitShare)*float64(c.Len()) - 1e-9)) // 0.1 of 10 is 1
	for _, i := range random.Perm(c.Len())[:cuts] {
		c.stored[i] = random.IntN(c.o.Hashes)
		_, _ = absent.Read(c.Chain(i)[c.stored[i]*HashLen:]) // never fails
	}
}

// Len returns the number of chains.
func (c *Chains) Len() int { return len(c.stored) }

// Hashes returns the number of hashes of a chain.
func (c *Chains) Hashes() int { return c.o.Hashes }

// Entries returns the number of hashes of all chains.
func (c *Chains) Entries() int { return c.Len() * c.o.Hashes }

// Tokens returns the tokens of that many leading hashes.
func (c *Chains) Tokens(hashes int) uint32 { return uint32(hashes * c.o.BlockSize) }

// Chain returns the hashes of a chain, joined. They are borrowed, and Put changes them.
func (c *Chains) Chain(i int) []byte {
	size := c.o.Hashes * HashLen
	return c.hashes[i*size:][:size:size]
}

// Hash returns one hash of a chain, as Chain does.
func (c *Chains) Hash(i, block int) []byte {
	return c.Chain(i)[block*HashLen:][:HashLen:HashLen]
}

// Lookup is a request for a whole chain.
type Lookup struct {
	Chain  int
	Stored int // leading hashes that are stored: what must be answered
	// Absent is the hash to ask for at block Stored, which no other lookup asks for. It
	// means nothing if the chain hits whole.
	Absent [HashLen]byte
}

// Lookup returns the n-th lookup of the rotation, from 0.
func (c *Chains) Lookup(n int) Lookup {
	chain := c.order[n%c.Len()]
	l := Lookup{Chain: chain, Stored: c.stored[chain]}
	if c.Hits(l) {
		return l
	}
	random := rand.NewPCG(uint64(c.o.Seed), forAbsent<<56|uint64(c.o.Hashes)<<32|uint64(n))
	for i := 0; i < HashLen; i += 8 {
		binary.LittleEndian.PutUint64(l.Absent[i:], random.Uint64())
	}
	return l
}

// Hits reports whether a lookup hits its chain whole.
func (c *Chains) Hits(l Lookup) bool { return l.Stored == c.o.Hashes }

// Want returns the right answer to a lookup, in tokens.
func (c *Chains) Want(l Lookup) uint32 { return c.Tokens(l.Stored) }

// Put writes the absent hash of a lookup into its chain, and returns the hashes to ask
// for, borrowed until the chain's next Put.
func (c *Chains) Put(l Lookup) []byte {
	if !c.Hits(l) {
		copy(c.Hash(l.Chain, l.Stored), l.Absent[:])
	}
	return c.Chain(l.Chain)
}
