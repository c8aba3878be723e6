//go:build linux

package load

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/netproto"
)

// lookups are what the connections of a run ask for. Read-only once they are made.
type lookups struct {
	*workload.Chains
	pool     workload.Pool
	hitShare float64
	seed     workload.Seed
	head     []byte // of a lookup, up to the hashes
	store    []byte // of a store of a chain, up to the hashes
	unknown  []byte // hashes that nobody stores, one after the other; see absent
}

// Purposes of random numbers.
const (
	forAbsent = workload.ForOthers + iota
	forMix    // by the number of a connection
)

// minAbsent is the least number of absent hashes: 2 MiB of them, more than a core's own
// caches hold. If more hashes are stored, there are as many absent ones.
const minAbsent = 1 << 16

func newLookups(o Options, pool workload.Pool) (*lookups, error) {
	if int64(o.Hashes)*int64(pool.BlockSize) >= 1<<32 {
		return nil, measure.BadOptions("%d hashes of %d tokens; a lookup takes less than 2^32 tokens", o.Hashes, pool.BlockSize)
	}
	l := &lookups{pool: pool, hitShare: o.HitShare, seed: workload.Seed(o.Seed)}
	l.Chains = workload.NewChains(workload.ChainOptions{
		Chains: workload.NumChains(o.Hashes, o.Entries, 0), Hashes: o.Hashes, BlockSize: pool.BlockSize, Seed: l.seed,
	})
	size := o.Hashes * hashLen
	l.head = netproto.AppendLookup(nil, nil, l.Tokens(o.Hashes), hashLen, size)
	l.store = netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.WireRank{}, hashLen, size)
	l.unknown = make([]byte, (max(l.Entries(), minAbsent)+o.Hashes)*hashLen)
	_, _ = l.seed.Bytes(forAbsent, 0).Read(l.unknown) // never fails
	return l, nil
}

// absent returns n hashes that nobody stores, from a random place on: each miss asks for
// another first one.
func (l *lookups) absent(n int, random *mathrand.Rand) []byte {
	at := random.IntN(len(l.unknown)/hashLen - n + 1)
	return l.unknown[at*hashLen:][: n*hashLen : n*hashLen]
}

// slot is one request under way, and what its answer must be.
type slot struct {
	start  int64 // when it was sent, or fell due in an open loop; ns of the run
	sent   int64 // when it was handed to the connection
	counts bool  // it was sent, or fell due, while measuring

	tag    netproto.Tag
	stored int    // leading hashes that are stored, of a lookup
	expect uint32 // tokens, of a lookup
}

// source makes the requests of a connection. It fills in s and returns parts with the request's
// bytes appended, which must stay as they are until its answer has come; false at the end.
type source func(s *slot, parts [][]byte) (request [][]byte, more bool)

// storing stores the chains from one to another, half-open.
func (l *lookups) storing(from, to int) source {
	return func(s *slot, parts [][]byte) ([][]byte, bool) {
		if from == to {
			return parts, false
		}
		from++
		s.tag = netproto.TagStore
		return append(parts, l.store, l.Chain(from-1)), true
	}
}

// mix looks chains up in random order, without end: what is measured. Connections have numbers.
func (l *lookups) mix(number int) source {
	random := l.seed.Rand(forMix, uint64(number))
	return func(s *slot, parts [][]byte) ([][]byte, bool) {
		hashes := l.Chain(random.IntN(l.Len()))
		s.tag, s.stored = netproto.TagLookup, l.Hashes()
		if random.Float64() >= l.hitShare {
			s.stored = random.IntN(l.Hashes())
		}
		s.expect = l.pool.Answer(l.Hashes(), s.stored)
		parts = append(parts, l.head)
		if s.stored > 0 {
			parts = append(parts, hashes[:s.stored*hashLen])
		}
		if left := l.Hashes() - s.stored; left > 0 {
			parts = append(parts, l.absent(left, random))
		}
		return parts, true
	}
}

// closing makes one ping, whose answer is the last thing to come.
func closing(request []byte) source {
	asked := false
	return func(s *slot, parts [][]byte) ([][]byte, bool) {
		if asked {
			return parts, false
		}
		asked = true
		s.tag = netproto.TagPing
		return append(parts, request), true
	}
}

// learnPool asks the server for the pool of its connections.
func learnPool(ctx context.Context, c *wire.Control) (workload.Pool, error) {
	hashes := make([]byte, workload.ProbeHashes*hashLen)
	_, _ = rand.Read(hashes) // never fails
	change := func(tag netproto.Tag) error {
		_, err := c.Done(ctx, tag.String(), netproto.AppendKeys(nil, nil, tag, netproto.WireRank{}, hashLen, len(hashes)), hashes)
		return err
	}
	pool, err := workload.Probe(
		func() error { return change(netproto.TagStore) },
		func(tokens uint32) (uint32, error) {
			frames, err := c.Ask(ctx, netproto.AppendLookup(nil, nil, tokens, hashLen, len(hashes)), hashes)
			if err != nil {
				return 0, err
			}
			hit, ok := wire.Hit(frames)
			if !ok {
				return 0, fmt.Errorf("%w: lookup was answered %s", measure.ErrAnswer, wire.Describe(frames))
			}
			return hit, nil
		},
		func() error { return change(netproto.TagEvict) },
	)
	if err != nil {
		return pool, fmt.Errorf("asking for the server's pool: %w", err)
	}
	return pool, nil
}
