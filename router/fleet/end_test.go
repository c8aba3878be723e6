package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// newHybrid returns a fleet of two groups with holders that have random parts of a chain.
func newHybrid(t *testing.T, holders int, chain coordinator.Hashes, rng *rand.Rand) *Fleet {
	t.Helper()
	groups := []coordinator.Group{{BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32}}
	f, err := New(Config{BlockSize: 16, Groups: groups})
	require.NoError(t, err)
	for i := range holders {
		h, err := f.Add(ID{Engine: fmt.Sprintf("e%04d", i)})
		require.NoError(t, err)
		h.SetStale(false)
		for group := range groups {
			blocks := events.Blocks{
				Group: group, Tier: events.Tier{Medium: []string{"GPU", "CPU"}[rng.IntN(2)]}, BlockSize: 16,
				Hashes: slice(chain, 0, 1+rng.IntN(chain.Len())),
			}
			if group == 1 {
				blocks.SpecKind, blocks.SlidingWindow = "sliding_window", 32
			}
			require.NoError(t, h.Store(&blocks, make([]bool, blocks.Hashes.Len())))
		}
	}
	return f
}

// A query that ends in pieces has the same answer, and each piece about the work that it may have.
func TestEndSome(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	chain := randomHashes(rng, 200)
	for name, f := range map[string]*Fleet{"groups": newHybrid(t, 300, chain, rng), "one group": newFilled(t, 300, chain)} {
		t.Run(name, func(t *testing.T) {
			var whole, pieces Query
			var want, got Result
			for range 3 { // reused
				require.NoError(t, whole.Begin(f, chain.HashLen()))
				require.NoError(t, pieces.Begin(f, chain.HashLen()))
				require.Zero(t, pieces.Work())
				whole.Add(chain.Bytes())
				pieces.Add(chain.Bytes())
				require.GreaterOrEqual(t, pieces.Work(), chain.Len()*hashWork)
				whole.End(&want)
				calls := 0
				for done := false; !done; calls++ {
					before := pieces.Work()
					done = pieces.EndSome(&got, 1)
					require.Less(t, pieces.Work()-before, 40_000, "a holder, or the order of all")
				}
				require.Equal(t, whole.Work(), pieces.Work())
				require.Equal(t, want.Holders, got.Holders)
				require.NotEmpty(t, got.Holders)
				if name == "groups" {
					require.Greater(t, calls, 100)
				} else {
					require.Equal(t, 1, calls)
				}
			}
		})
	}
}

// What changes between the pieces of an end does not matter, or is seen as gone.
func TestEndSomeMeanwhile(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	chain := randomHashes(rng, 50)
	f := newHybrid(t, 100, chain, rng)
	var before, got Result
	require.NoError(t, f.Lookup(&before, chain))
	want := slices.Clone(before.Holders)
	var q Query
	require.NoError(t, q.Begin(f, chain.HashLen()))
	q.Add(chain.Bytes())
	for i := 0; !q.EndSome(&got, 1); i++ {
		id := ID{Engine: fmt.Sprintf("e%04d", i)}
		if h := f.Get(id); h != nil && i%2 == 0 {
			h.Clear()
			want = slices.DeleteFunc(want, func(p Prefix) bool { return p.ID == id })
		}
	}
	var names, wanted []string
	for _, p := range got.Holders {
		names = append(names, p.Engine)
	}
	for _, p := range want {
		wanted = append(wanted, p.Engine)
	}
	require.Equal(t, wanted, names)
}
