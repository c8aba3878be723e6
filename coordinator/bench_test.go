package coordinator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchPools are one pool for each shape of the search; hits are the patterns
// of presence.
func benchPools() map[string]Pool {
	const window = 1024
	return map[string]Pool{
		"full":   {},
		"window": {Groups: []Group{{Kind: SlidingWindow, BlockSize: 16, SlidingWindow: window}}},
		"mamba":  {Groups: []Group{{Kind: Mamba, BlockSize: 16}}},
		"hybrid": {Groups: []Group{
			{Kind: FullAttention, BlockSize: 16},
			{Kind: SlidingWindow, BlockSize: 16, SlidingWindow: window},
		}},
		"hybrid5": {UseEagle: true, Groups: []Group{
			{Kind: FullAttention, BlockSize: 64},
			{Kind: FullAttention, BlockSize: 64},
			{Kind: SlidingWindow, BlockSize: 16, SlidingWindow: window, IsEagleGroup: true},
			{Kind: SlidingWindowMLA, BlockSize: 32, SlidingWindow: window},
			{Kind: Mamba, BlockSize: 64},
		}},
	}
}

// prefixPresence holds the first blocks of share (in percent) of the hashes.
func prefixPresence(c *Coordinator, numHashes, share int) *Presence {
	p := &Presence{NumHashes: numHashes}
	for g := range c.NumGroups() {
		positions := numHashes / c.KeyStride(g)
		set := make([]uint64, (positions+63)/64)
		for i := range positions * share / 100 {
			set[i/64] |= 1 << (i % 64)
		}
		p.Bits = append(p.Bits, set)
	}
	return p
}

func BenchmarkFindHit(b *testing.B) {
	for _, kind := range []string{"full", "window", "mamba", "hybrid", "hybrid5"} {
		c, err := New(benchPools()[kind])
		require.NoError(b, err)
		for _, hashes := range []int{64, 8192, 131072} {
			for _, hit := range []struct {
				name  string
				share int
			}{{"all", 100}, {"none", 0}, {"half", 50}} {
				b.Run(fmt.Sprintf("kind=%s/hashes=%d/hit=%s", kind, hashes, hit.name), func(b *testing.B) {
					p := prefixPresence(c, hashes, hit.share)
					var s Scratch
					b.ReportAllocs()
					for b.Loop() {
						if _, err := c.FindHit(p, int64(hashes*DefaultHashBlockSize), true, &s); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func TestFindHitDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for kind, pool := range benchPools() {
		c, err := New(pool)
		require.NoError(t, err)
		for _, share := range []int{0, 50, 100} {
			p := prefixPresence(c, 8192, share)
			var s Scratch
			lookup := func() {
				if _, err := c.Answer(p, 8192*DefaultHashBlockSize, &s); err != nil {
					t.Fatal(err)
				}
				for g := range c.NumGroups() {
					_ = s.Mask(g).At(3)
				}
			}
			if n := testing.AllocsPerRun(20, lookup); n != 0 {
				t.Errorf("kind %s, %d%% stored: %v allocations a lookup, want 0", kind, share, n)
			}
		}
	}
}
