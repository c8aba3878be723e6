package coordinator

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rememberingStore is a store that remembers some of the blocks that it holds.
type rememberingStore struct {
	KeyStore
	c      *Coordinator
	blocks map[string]bool // by the key on the first rank
	found  map[string]bool // likewise: those of Remember

	expected int // hashes
}

func (s *rememberingStore) Expected() int { return s.expected }

// keysOf returns the keys of blocks on a rank.
func (s *rememberingStore) keysOf(g, rank int, hashes Hashes, first, stride int, blocks uint64) (keys []string) {
	for ; blocks != 0; blocks &= blocks - 1 {
		keys = append(keys, s.c.key(g, rank, hashes.At(first+bits.TrailingZeros64(blocks)*stride)))
	}
	return keys
}

func (s *rememberingStore) Remembered(g int, hashes Hashes, first, stride int, blocks uint64) (remembered uint64) {
	keys := s.keysOf(g, 0, hashes, first, stride, blocks)
	for i := range 64 {
		if blocks>>i&1 != 0 {
			if s.blocks[keys[0]] {
				remembered |= 1 << i
			}
			keys = keys[1:]
		}
	}
	return remembered
}

func (s *rememberingStore) Remember(g int, hashes Hashes, first, stride int, blocks uint64) {
	for _, key := range s.keysOf(g, 0, hashes, first, stride, blocks) {
		s.found[key] = true
	}
}

// A store that remembers blocks is asked for no key of them, gets the same answer, and is told exactly what it was
// asked for and has on all ranks. Asked again with that remembered, it answers without a call.
func TestRememberedBlocks(t *testing.T) {
	withoutCall, asked := 0, 0
	for seed := range seedsFor(1_000) {
		g := (&source{data: randomBytes(seed, 200)}).lookupCase(t)
		random := rand.New(rand.NewPCG(seed, 0))
		complete := map[string]bool{} // blocks that all ranks hold, by the key on the first
		for group := range g.c.groups {
			for i := range g.hashes.Len() {
				complete[g.c.key(group, 0, g.hashes.At(i))] = true
				for rank := range g.c.Ranks(group) {
					if !g.held[g.c.key(group, rank, g.hashes.At(i))] {
						delete(complete, g.c.key(group, 0, g.hashes.At(i)))
					}
				}
			}
		}
		plain := rounds{held: g.held}
		want, wantErr := g.c.Lookup(g.tokens, g.fromStart(), ExistsFunc(plain.exists))
		knows := map[string]bool{}
		for key := range complete {
			if random.IntN(4) > 0 {
				knows[key] = true
			}
		}
		for again := range 2 {
			store := rounds{held: g.held}
			k := &rememberingStore{ExistsFunc(store.exists), g.c, knows, map[string]bool{}, random.IntN(2 * (1 + g.hashes.Len()))}
			hit, err := g.c.Lookup(g.tokens, g.fromStart(), k)
			require.Equal(t, errorClass(wantErr), errorClass(err), seed)
			require.Equal(t, want, hit, seed)
			require.LessOrEqual(t, len(store.calls), maxRounds)
			for key, times := range store.times {
				require.Equal(t, 1, times)
				require.False(t, knows[key], "%d: asked for what it knows", seed)
				require.Equal(t, complete[key], k.found[key], seed)
			}
			for key := range k.found {
				require.Positive(t, store.times[key])
				knows[key] = true
			}
			switch {
			case again == 0:
			case len(store.calls) == 0 && hit.Tokens > 0:
				withoutCall++
			default:
				asked++
			}
			if again == 1 && hit.Tokens == want.Tokens && allHeld(&plain) {
				require.Empty(t, store.calls, "all that matters is remembered: %d", seed)
			}
		}
	}
	require.Greater(t, withoutCall, 10)
	require.Greater(t, asked, 10)
}

// A long prompt that is absent is not compared with what is remembered beyond its first blocks.
func TestRememberedBlocksOfAnAbsentPrompt(t *testing.T) {
	c := must(t, Pool{Groups: []Group{full(16)}})
	var store rounds
	k := &counting{rememberingStore: rememberingStore{KeyStore: ExistsFunc(store.exists), c: c}}
	_, err := c.Lookup(16*2048, serial(2048), k)
	require.NoError(t, err)
	require.Len(t, store.calls, 1)
	require.LessOrEqual(t, k.blocks, 2*firstRound)
}

// counting counts the blocks of Remembered.
type counting struct {
	rememberingStore
	blocks int
}

func (s *counting) Remembered(g int, hashes Hashes, first, stride int, blocks uint64) uint64 {
	s.blocks += bits.OnesCount64(blocks)
	return s.rememberingStore.Remembered(g, hashes, first, stride, blocks)
}

// What is likely to be stored is asked for at once, with some positions behind it.
func TestExpected(t *testing.T) {
	for name, pool := range map[string]Pool{
		"full":   {TPSize: 2, Groups: []Group{full(16)}},
		"hybrid": {TPSize: 2, Groups: []Group{full(16), full(32), window(16, 1024)}},
	} {
		c := must(t, pool)
		for expected, want := range map[int]int{0: 64, 100: 164, 1000: 1064, 5000: 2048} {
			var store rounds
			hit, err := c.Lookup(16*2048, serial(2048), &rememberingStore{KeyStore: ExistsFunc(store.exists), c: c, expected: expected})
			require.NoError(t, err)
			require.Zero(t, hit.Tokens)
			positions := map[string]bool{}
			for _, key := range store.calls[0] {
				positions[key[strings.LastIndex(key, "@group:"):]] = true
			}
			if name == "full" {
				require.Len(t, positions, want)
			} else { // both groups of full attention have their part
				require.GreaterOrEqual(t, len(positions), min(expected, 2000), name)
				require.GreaterOrEqual(t, len(store.calls[0]), 2*(min(expected, 2048)*3/2), name)
			}
		}
	}
}

// What each group of full attention is expected to have is asked for at once, also if their blocks are of different sizes.
func TestExpectedOfGroups(t *testing.T) {
	c := must(t, Pool{Groups: []Group{full(16), full(64)}})
	var store rounds
	for g := range 2 {
		store.hold(c, g, serial(2048), 0, below(2048))
	}
	remembering := &rememberingStore{KeyStore: ExistsFunc(store.exists), c: c, expected: 2048, found: map[string]bool{}}
	hit, err := c.Lookup(16*2048, serial(2048), remembering)
	require.NoError(t, err)
	require.EqualValues(t, 16*2048, hit.Tokens)
	require.Equal(t, []int{2048 + 512}, store.sizes())
}
