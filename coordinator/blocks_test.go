package coordinator

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/oracle"
	"github.com/hitline/hitline/netproto"
)

// blocksCase is a random pool with the blocks of one chain that all its ranks hold.
type blocksCase struct {
	*rand.Rand
	slow    oracle.Pool
	c       *Coordinator
	hashes  []string
	content oracle.Content
	number  map[string]int // of each hash
	asked   map[string]int // calls of exists by key
}

func newBlocksCase(t *testing.T, seed uint64) *blocksCase {
	b := &blocksCase{Rand: rand.New(rand.NewPCG(seed, 3)), number: map[string]int{}}
	b.slow = oracle.RandomPool(b.Rand)
	text, err := json.Marshal(b.slow)
	require.NoError(t, err)
	var pool Pool
	if revision, err := ParseRelease(b.slow.Revision); err == nil {
		release := b.slow
		release.Revision = "2026-06-20"
		text, _ = json.Marshal(release)
		require.NoError(t, json.Unmarshal(text, &pool))
		pool.Revision = revision
	} else {
		require.NoError(t, json.Unmarshal(text, &pool))
	}
	b.c, err = New(pool)
	require.NoError(t, err, "seed %d: %s", seed, text)
	n := oracle.RandomChainLen(b.Rand, &b.slow)
	for i := range n {
		b.hashes = append(b.hashes, string(binary.BigEndian.AppendUint32(nil, uint32(i+1))))
		b.number[b.hashes[i]] = i
	}
	b.content = oracle.RandomContent(b.Rand, &b.slow, n)
	return b
}

// holds reports whether all ranks hold a block. group is a position in Pool.Groups.
func (b *blocksCase) holds(group int, hash string) bool {
	for _, list := range b.content[group] {
		if !list[b.number[hash]] {
			return false
		}
	}
	return true
}

func (b *blocksCase) exists(group int, hash []byte) bool {
	b.asked[string(b.c.AppendKey(nil, group, 0, hash))]++
	return b.holds(b.c.PoolIndex(group), string(hash))
}

// LookupBlocks has the hit of the slow lookup, and checks only blocks that it checks.
func TestLookupBlocksAgainstOracle(t *testing.T) {
	seeds, hits := seedsFor(3_000), 0
	for seed := range seeds {
		b := newBlocksCase(t, seed)
		for range 4 {
			if b.lookup(t, seed) > 0 {
				hits++
			}
		}
		if t.Failed() {
			return
		}
	}
	assert.Greater(t, hits, int(seeds)/4)
}

func (b *blocksCase) lookup(t *testing.T, seed uint64) (hit int64) {
	n := b.IntN(len(b.hashes) + 1)
	tokens := b.IntN(n*b.slow.HashBlockSize + 2*b.slow.SchedulerBlockSize)
	if b.c.NeedsAligned() && b.IntN(8) > 0 {
		tokens -= tokens % b.slow.SchedulerBlockSize
	}
	b.asked = map[string]int{}
	hashes := b.joined(t, n)
	got, err := b.c.LookupBlocks(int64(tokens), hashes, b.exists)
	if b.slow.Revision == oracle.Rev20260604 {
		assert.True(t, err != nil || n == 0 || tokens == 0, "no lookups at this revision")
		return 0
	}
	want, tails, class := b.slow.LookupTails(tokens, b.hashes[:n], func(g int, _ oracle.Rank, hash string) bool {
		return b.holds(g, hash)
	})
	if !assert.Equal(t, class, errorClass(err), "seed %d: %v", seed, err) || class != "" {
		return 0
	}
	assert.EqualValues(t, want, got.Tokens, "seed %d", seed)
	var gotTails []oracle.Boundary
	for _, tail := range got.TailBoundaries {
		gotTails = append(gotTails, oracle.Boundary{Group: tail.Group, Tokens: int(tail.Tokens)})
	}
	assert.Equal(t, tails, gotTails, "seed %d", seed)
	b.checkAsked(t, seed, tokens, n)
	return got.Tokens
}

func (b *blocksCase) joined(t *testing.T, n int) netproto.Hashes {
	list := make([][]byte, n)
	for i := range list {
		list[i] = []byte(b.hashes[i])
	}
	hashes, err := netproto.JoinHashes(nil, list)
	require.NoError(t, err)
	return hashes
}

// checkAsked checks that exists was asked for blocks that Lookup checks, and for none behind
// the first gap of the first full-attention group.
func (b *blocksCase) checkAsked(t *testing.T, seed uint64, tokens, n int) {
	keys, _ := b.slow.Keys(tokens, b.hashes[:n])
	checked := map[string]bool{}
	for _, key := range keys {
		checked[key] = true
	}
	for key, times := range b.asked {
		assert.True(t, checked[key], "seed %d: Lookup does not check %s", seed, key)
		assert.True(t, times == 1, "seed %d: %s is checked %d times", seed, key, times)
	}
	first := b.c.attention[0]
	if !first.Kind.IsFull() || b.c.FineGrained() {
		return
	}
	gap, full := 0, first.members[0]
	for gap < n/first.stride && b.holds(b.c.PoolIndex(full), b.hashes[netproto.KeyIndex(gap, first.stride)]) {
		gap++
	}
	end := b.c.LookEnd(int64(gap) * first.block)
	for g := range b.c.NumGroups() {
		for i := range n / b.c.Stride(g) {
			behind := int64(i+1)*int64(b.c.groups[g].BlockSize) > end && (g != full || i != gap)
			key := b.c.AppendKey(nil, g, 0, []byte(b.hashes[netproto.KeyIndex(i, b.c.Stride(g))]))
			assert.False(t, behind && b.asked[string(key)] > 0, "seed %d: block %d of group %d is behind the gap %d", seed, i, g, gap)
		}
	}
}

// How many blocks of each group are checked for a prompt of 2,048 hashes.
func TestLookupBlocksChecksFew(t *testing.T) {
	const n = 2048
	groups := []Group{full(16), window(16, 1024), mamba(16)}
	for _, tc := range []struct {
		name   string
		held   [3]int // leading blocks of each group
		hit    int64
		checks [3]int
	}{
		{"all is stored", [3]int{n, n, n}, n * 16, [3]int{n, 64, 1}},
		{"nothing is stored", [3]int{}, 0, [3]int{1, 0, 0}},
		{"an early gap of full attention", [3]int{100, n, n}, 1600, [3]int{101, 64, 1}},
		{"no window", [3]int{100, 0, n}, 0, [3]int{101, 100, 2}},
		{"a state too far off to look for it alone", [3]int{1000, n, 70}, 70 * 16, [3]int{1001, 1000, 1000}},
		{"one state", [3]int{100, n, 70}, 70 * 16, [3]int{101, 94, 31}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := must(t, Pool{Groups: groups})
			var checks [3]int
			hit, err := c.LookupBlocks(n*16, serial(n), func(group int, hash []byte) bool {
				checks[group]++
				return int(binary.BigEndian.Uint64(hash)) < tc.held[group]
			})
			require.NoError(t, err)
			assert.Equal(t, tc.hit, hit.Tokens)
			assert.Equal(t, tc.checks, checks)
		})
	}
}

// seedsFor returns how many random cases a test tries, a tenth of n with the race detector.
func seedsFor(n uint64) uint64 {
	if raceEnabled {
		return n / 10
	}
	return n
}
