package coordinator

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/oracle"
)

// TestMissingRank stores the blocks of ranks as a store would, by their keys.
func TestMissingRank(t *testing.T) {
	c := must(t, Pool{TPSize: 2, PPSize: 2, Groups: []Group{full(16), {Kind: SlidingWindow, BlockSize: 16, SlidingWindow: 17}}})
	for name, tc := range map[string]struct {
		lacking []string // letters of the blocks that a rank lacks, by rank
		reason  Reason
		rank    Rank
		ranks   int
	}{
		"none":      {[]string{"", "", "", ""}, ReasonComplete, Rank{}, 0},
		"the first": {[]string{"c", "", "", ""}, ReasonRank, Rank{}, 1},
		"the last":  {[]string{"d", "d", "d", "cd"}, ReasonRank, Rank{TP: 1, PP: 1}, 1},
		"two":       {[]string{"", "c", "c", ""}, ReasonRank, Rank{TP: 0, PP: 1}, 2},
		"all":       {[]string{"c", "c", "c", "c"}, ReasonMissing, Rank{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store := fakeStore{held: map[string]bool{}}
			for i := range c.Ranks(0) {
				for _, hash := range []byte("abcd") {
					store.held[c.key(1, i, []byte{hash})] = hash != 'd' || i == 0
					store.held[c.key(0, i, []byte{hash})] = !bytes.ContainsRune([]byte(tc.lacking[i]), rune(hash))
				}
			}
			_, ends, _, err := c.LookupExplain(64, letters("abcd"), ExistsFunc(store.exists))
			require.NoError(t, err)
			require.Equal(t, tc.reason, ends[0].Reason)
			require.Equal(t, tc.rank, ends[0].MissingRank)
			require.Equal(t, tc.ranks, ends[0].MissingRanks)
			require.Equal(t, Rank{TP: 0, PP: 1}, ends[1].MissingRank)
			require.Equal(t, 3, ends[1].MissingRanks)
		})
	}
}

// gapCase is a group of a random pool, alone, with what is stored of it.
type gapCase struct {
	c         *Coordinator
	slow      *oracle.Pool // of the group alone, nil if the pool has more
	group     int
	tokenLen  int64
	numTokens int64
	hashes    int
	stored    []bool // by presence position
}

// end returns the group's end with the given blocks.
func (g *gapCase) end(stored []bool) (end GroupEnd) {
	p := &Presence{NumHashes: g.hashes, Bits: make([][]uint64, g.c.NumGroups())}
	p.Bits[g.group] = bitsetFrom(stored)
	end = GroupEnd{Group: g.group, Kind: g.c.groups[g.group].Kind, FirstMissing: -1}
	if err := g.c.explainGroup(&end, p, p, g.tokenLen, g.numTokens); err != nil {
		panic(err)
	}
	return end
}

// endTokens is EndTokens of end, by the oracle if it knows the group alone.
func (g *gapCase) endTokens(stored []bool) int64 {
	if g.slow == nil {
		return g.end(stored).EndTokens
	}
	stride := g.c.KeyStride(g.group)
	has := func(_, raw int) bool { return (raw+1)%stride == 0 && stored[raw/stride] }
	find := func(tokens int64) (hit int, class string) {
		hit, _, class = g.slow.FindHit(has, g.hashes, int(tokens), true)
		if class == "IndexError" { // the tokens of the hashes count
			hit, _, class = g.slow.FindHit(has, g.hashes, int(min(tokens, g.hashed())), true)
		}
		return hit, class
	}
	hit, class := find(g.tokenLen)
	if class == "" && g.c.rules.shortensFullHit && int64(hit) >= g.numTokens { // as in a lookup
		hit, class = find(floorTo(g.numTokens-1, g.c.align))
	}
	if class != "" {
		return 0
	}
	return int64(hit)
}

// hashed returns the tokens of the lookup that have hashes, aligned.
func (g *gapCase) hashed() int64 {
	a, align := &g.c.attention[g.c.groups[g.group].attention], g.c.align
	if g.c.rules.singleAlignsToBlock && len(g.c.attention) == 1 {
		align = a.block
	}
	return floorTo(min(g.tokenLen, int64(g.hashes/a.stride)*a.block), align)
}

// with returns what is stored with further whole blocks, as far as they are looked up.
func (g *gapCase) with(blocks ...run) []bool {
	stored, mask := append([]bool(nil), g.stored...), g.c.KeyMask(g.group)
	for _, b := range blocks {
		for i := b.lo; i < b.hi; i++ {
			if at := g.position(i); mask.At(int64(at)) {
				stored[at] = true
			}
		}
	}
	return stored
}

// position returns the presence position that keys block i.
func (g *gapCase) position(i int64) int {
	return KeyIndex(int(i), g.c.Stride(g.group)/g.c.KeyStride(g.group))
}

// blocks returns the number of blocks that the group may use: not those of the token that is left
// to compute, unless one is dropped.
func (g *gapCase) blocks() int64 {
	a := &g.c.attention[g.c.groups[g.group].attention]
	tokens := g.hashed()
	if a.Kind.IsFull() {
		tokens = min(g.tokenLen, int64(g.hashes/a.stride)*a.block)
	}
	if g.c.rules.shortensFullHit && (!a.eagle || a.Kind == Mamba) {
		tokens = min(tokens, floorTo(g.numTokens-1, g.c.align))
	}
	return tokens / a.block
}

// gap finds the gap by trying. The first possible end behind ended needs the least number of
// leading blocks that, stored alone, let the group end later. Of the absent ones among them
// those matter without which it does not.
func (g *gapCase) gap(ended int64) (begin, end int64) {
	n, blocks := int64(1), g.blocks()
	endsLater := func(missing int64) bool {
		stored := g.with(run{0, n})
		if missing >= 0 {
			stored[g.position(missing)] = false
		}
		clear(stored[g.position(n-1)+1:])
		return g.endTokens(stored) > ended
	}
	for n <= blocks && !endsLater(-1) {
		n++
	}
	if n > blocks {
		return 0, 0
	}
	for g.stored[g.position(begin)] || endsLater(begin) {
		begin++
	}
	for end = n; g.stored[g.position(end-1)] || endsLater(end-1); {
		end--
	}
	for mask := g.c.KeyMask(g.group); end < blocks && !g.stored[g.position(end)] && mask.At(int64(g.position(end))); {
		end++
	}
	return begin, end
}

// randomGapCase returns false if the pool of the seed is none.
func randomGapCase(t *testing.T, seed uint64) (*gapCase, bool) {
	r := rand.New(rand.NewPCG(seed, 22))
	slow := oracle.RandomPool(r)
	if slow.CapacityOnly {
		return nil, false
	}
	if groups := slow.StoreGroups(); r.IntN(3) > 0 {
		group := slow.Groups[groups[r.IntN(len(groups))]]
		if r.IntN(8) == 0 {
			group = oracle.Group{Kind: "chunked_local_attention", BlockSize: group.BlockSize, AttentionChunkSize: group.BlockSize * (1 + r.IntN(5))}
		}
		if slow.Groups = []oracle.Group{group}; group.Kind == "chunked_local_attention" { // which has no other alignment
			slow.SchedulerBlockSize, slow.CacheHitAlignmentTokens, slow.UseEagle = group.BlockSize, 0, false
			slow.Groups[0].IsEagleGroup = false
		}
	}
	text, err := json.Marshal(slow)
	require.NoError(t, err)
	var pool Pool
	require.NoError(t, json.Unmarshal(text, &pool))
	c, err := New(pool)
	if err != nil { // the other groups are what made it valid
		return nil, false
	}
	g := &gapCase{c: c, hashes: oracle.RandomChainLen(r, &slow), group: r.IntN(c.NumGroups())}
	if len(slow.Groups) == 1 {
		g.slow = &slow
	}
	tokens := g.hashes * pool.HashBlockSize
	if r.IntN(3) == 0 {
		tokens = r.IntN(tokens + 2*pool.SchedulerBlockSize)
	}
	g.numTokens = int64(tokens)
	if r.IntN(2) == 0 || c.NeedsAligned() {
		g.numTokens = floorTo(g.numTokens, c.Alignment())
	}
	if g.tokenLen = floorTo(g.numTokens, c.Alignment()); g.tokenLen == 0 {
		return nil, false // nothing is explained
	}
	g.stored = make([]bool, g.hashes/c.KeyStride(g.group))
	positions, mask := c.Positions(g.group, g.tokenLen, g.hashes), c.KeyMask(g.group)
	density, step := 0.1+0.9*r.Float64(), 1+r.IntN(3)
	for i := range positions {
		g.stored[i] = mask.At(int64(i)) && (r.Float64() < density) == (i/step%2 == 0 || r.IntN(2) == 0)
	}
	return g, true
}

// TestGapAgainstOracle compares the gaps of random groups with those found by trying, stores
// them, and takes away what lies behind them.
func TestGapAgainstOracle(t *testing.T) {
	gaps, none, tried, kinds := 0, 0, 0, map[Kind]int{}
	for seed := range seedsFor(4000) {
		g, ok := randomGapCase(t, seed)
		if !ok {
			continue
		}
		end := g.end(g.stored)
		require.Equal(t, g.endTokens(g.stored), end.EndTokens, "seed %d: %+v %+v %v %d", seed, end, g.c.pool, g.stored, g.numTokens)
		begin, to := g.gap(end.EndTokens)
		require.Equal(t, [2]int64{begin, to}, [2]int64{end.GapStart, end.GapEnd}, "seed %d: %+v\n%v", seed, g.c.pool, g.stored)
		if tried++; begin == to {
			all := g.with(run{0, int64(g.hashes / g.c.Stride(g.group))})
			require.Equal(t, end.EndTokens, g.endTokens(all), "seed %d: no gap, with all stored", seed)
			require.EqualValues(t, -1, end.FirstMissing, "seed %d: no gap: %+v %+v %v", seed, end, g.c.pool, g.tokenLen)
			none++
			continue
		}
		require.NotContains(t, []Reason{ReasonComplete, ReasonEagle, ReasonHashes, ReasonNothing}, end.Reason, "seed %d", seed)
		require.GreaterOrEqual(t, end.FirstMissing, begin, "seed %d", seed)
		require.Greater(t, g.endTokens(g.with(run{begin, to})), end.EndTokens, "seed %d: with its gap stored", seed)
		clear(g.stored[min(len(g.stored), g.position(to-1)+1):])
		fewer := g.end(g.stored)
		require.Equal(t, [2]int64{end.EndTokens, begin}, [2]int64{fewer.EndTokens, fewer.GapStart}, "seed %d: without what lies behind", seed)
		gaps++
		kinds[end.Kind]++
	}
	t.Logf("%d groups, %d gaps: %v; %d have none", tried, gaps, kinds, none)
	for _, kind := range []Kind{FullAttention, SlidingWindow, ChunkedLocalAttention, Mamba} {
		require.Greater(t, kinds[kind], int(seedsFor(4000))/200, "%s", kind)
	}
}

func TestFirstOne(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 1))
	for range 2000 {
		set := make([]uint64, r.IntN(6))
		for range r.IntN(4) {
			if n := 64 * len(set); n > 0 {
				SetBits(set, r.IntN(n), n-r.IntN(n))
				clear(set[r.IntN(len(set)):])
			}
		}
		if n := 64 * len(set); n > 0 && r.IntN(2) == 0 {
			at := r.IntN(n)
			SetBits(set, at, at+1)
		}
		from, to := r.IntN(400), r.IntN(400)
		want := from
		for want < to && (want/64 >= len(set) || set[want/64]>>(want%64)&1 == 0) {
			want++
		}
		v := view{bits: [][]uint64{set}, members: []int{0}}
		require.Equal(t, max(want, from), v.firstOne(from, to), "[%d, %d) of %x", from, to, set)
	}
}
