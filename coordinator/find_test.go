package coordinator

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// must builds a coordinator.
func must(t *testing.T, pool Pool) *Coordinator {
	t.Helper()
	c, err := New(pool)
	require.NoError(t, err)
	return c
}

// parse reads a list of booleans written as T and F; other characters are
// spacing.
func parse(text string) []bool {
	list := []bool{}
	for _, letter := range text {
		switch letter {
		case 'T':
			list = append(list, true)
		case 'F':
			list = append(list, false)
		}
	}
	return list
}

// show writes a mask as T and F, the sentinel by its length.
func show(m Mask) string {
	if m.IsAll() {
		return fmt.Sprintf("all of %d", m.Len())
	}
	text := make([]byte, m.Len())
	for i := range text {
		text[i] = 'F'
		if m.At(int64(i)) {
			text[i] = 'T'
		}
	}
	return string(text)
}

func window(block, size int) Group {
	return Group{Kind: SlidingWindow, BlockSize: block, SlidingWindow: size}
}

func full(block int) Group { return Group{Kind: FullAttention, BlockSize: block} }

func mamba(block int) Group { return Group{Kind: Mamba, BlockSize: block} }

func local(block, size int) Group {
	return Group{Kind: ChunkedLocalAttention, BlockSize: block, AttentionChunkSize: size}
}

func eagle(g Group) Group {
	g.IsEagleGroup = true
	return g
}

func align(g Group) Group {
	g.MambaCacheMode = "align"
	return g
}

// Lengths come from clients: none may cost more than its hashes.
func TestHugeLengths(t *testing.T) {
	const huge = math.MaxInt64
	pools := []Pool{
		{},
		{UseEagle: true},
		{UseEagle: true, Groups: []Group{full(16), full(32)}},
		{HashBlockSize: 1, Groups: []Group{local(1, maxTokens)}},
		{Groups: []Group{full(16), local(16, maxTokens)}},
		{Groups: []Group{window(16, maxTokens)}},
		{HashBlockSize: 8, Groups: []Group{mamba(16)}},
		{HashBlockSize: 8, Groups: []Group{local(16, maxTokens)}},
		{VLLM: "0.28.0", Groups: []Group{full(32), align(mamba(32))}},
	}
	for _, pool := range pools {
		c := must(t, pool)
		for _, everything := range []bool{false, true} {
			p := prefixPresence(c, 100, 100)
			p.Everything = everything
			var s Scratch
			hit, err := c.FindHit(p, huge, true, &s)
			if err == nil {
				assert.GreaterOrEqual(t, hit, int64(0))
			}
			answer, err := c.Answer(p, floorTo(huge, c.Alignment()), &s)
			if err == nil {
				assert.GreaterOrEqual(t, answer.Tokens, int64(0))
			}
		}
		_, _ = c.LoadMask(huge, 3)
		for _, op := range []func(int64) ([]Mask, error){c.LookupMask, func(n int64) ([]Mask, error) { return c.StoreMask(n, 0, huge) }} {
			masks, err := op(floorTo(huge, c.Alignment()))
			if err == nil {
				assert.Len(t, masks, c.NumGroups())
			}
		}
	}
}

func TestPresenceMustFitThePool(t *testing.T) {
	c := must(t, Pool{Groups: []Group{full(16), window(16, 32)}})
	var s Scratch
	_, err := c.FindHit(&Presence{NumHashes: 1, Bits: [][]uint64{{1}}}, 16, true, &s)
	require.ErrorIs(t, err, ErrInvalidPresence)
	_, err = c.FindHit(&Presence{NumHashes: -1, Everything: true}, 16, true, &s)
	require.ErrorIs(t, err, ErrInvalidPresence)
	_, err = c.LoadMask(16, -1)
	require.ErrorIs(t, err, ErrInvalidPresence)
}

// Words that a bitset lacks are zero words, for each member by itself.
func TestShortBitsets(t *testing.T) {
	c := must(t, Pool{Groups: []Group{full(16), full(16)}})
	var s Scratch
	ones := []uint64{^uint64(0), ^uint64(0)}
	for _, tc := range []struct {
		bits [][]uint64
		hit  int64
	}{{[][]uint64{ones, ones}, 128}, {[][]uint64{ones, ones[:1]}, 64}, {[][]uint64{ones[:1], ones}, 64}, {[][]uint64{ones, nil}, 0}} {
		hit, err := c.FindHit(&Presence{NumHashes: 128, Bits: tc.bits}, 128*16, true, &s)
		require.NoError(t, err)
		assert.Equal(t, tc.hit*16, hit)
	}
}

// Bits behind the last whole block are noise.
func TestNoiseBehindTheHashes(t *testing.T) {
	for _, g := range []Group{full(16), window(16, 64), mamba(16), local(16, 64)} {
		c := must(t, Pool{Groups: []Group{g}})
		var s Scratch
		for n := range 130 {
			p := Presence{NumHashes: n, Bits: [][]uint64{{^uint64(0), ^uint64(0), ^uint64(0)}}}
			hit, err := c.FindHit(&p, int64(n*16), true, &s)
			require.NoError(t, err)
			assert.Equal(t, int64(n*16), hit)
		}
	}
}

func TestScratchServesSeveralPools(t *testing.T) {
	var s Scratch
	big := must(t, Pool{Groups: []Group{full(16), window(16, 32), mamba(32)}})
	small := must(t, Pool{})
	for range 2 {
		hit, err := big.FindHit(prefixPresence(big, 8, 100), 128, true, &s)
		require.NoError(t, err)
		assert.Equal(t, int64(128), hit)
		assert.Equal(t, "FFFT", show(s.Mask(2)))
		hit, err = small.FindHit(prefixPresence(small, 8, 50), 128, true, &s)
		require.NoError(t, err)
		assert.Equal(t, int64(64), hit)
		assert.Equal(t, "TTTT", show(s.Mask(0)))
	}
}

// FindHit runs a finder again for each block that the hit shrinks by, so it must not
// look at a whole window again: that would take time with the window's square.
func TestFindersLookOnce(t *testing.T) {
	const n = 256
	for name, g := range map[string]Group{
		"window": window(16, 100*16+1),
		"local":  {Kind: ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: n * 16},
	} {
		t.Run(name, func(t *testing.T) {
			c := must(t, Pool{Groups: []Group{g}})
			p := Presence{NumHashes: n, Bits: [][]uint64{{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}}
			q := finderArgs{maxLength: (n - 1) * 16, align: 16, present: new(span)}
			for blocks := int64(n - 1); blocks > 215; blocks-- {
				q.maxLength = blocks * 16
				f, err := c.find(&c.attention[0], &p, q)
				require.NoError(t, err)
				require.Equal(t, q.maxLength, f.hit)
				for i := blocks - 100; i < blocks-60; i++ { // it has looked at these
					p.Bits[0][i/64] &^= 1 << (i % 64)
				}
			}
			q.present = new(span)
			f, err := c.find(&c.attention[0], &p, q)
			require.NoError(t, err)
			require.NotEqual(t, q.maxLength, f.hit, "who has seen nothing looks")
		})
	}
}

// A later group that shortens the hit lets eagle groups look ahead again, so what lies more
// than one block of each of them behind the gap of a full group can matter.
func TestRepeatedLookahead(t *testing.T) {
	c := must(t, growingPool())
	assert.Equal(t, int64(160), c.lookahead, "two blocks of each of the five eagle mamba groups")
	p := Presence{NumHashes: 6}
	for _, text := range []string{"FFFFFF", "TFFFTF", "FTTFFT", "TFTFFF", "FTTFFF", "FFTFFF", "FFFTFF"} {
		p.Bits = append(p.Bits, bitsetFrom(parse(text)))
	}
	hit, err := c.FindHit(&p, 96, true, new(Scratch))
	require.NoError(t, err)
	assert.Equal(t, int64(64), hit)
	p.Bits[2][0] &^= 1 << 5 // six blocks behind the gap, with five eagle groups
	hit, err = c.FindHit(&p, 96, true, new(Scratch))
	require.NoError(t, err)
	assert.Zero(t, hit, "the block decides")
}

// growingPool has a full group and mamba groups that look ahead more than once.
func growingPool() Pool {
	p := Pool{Groups: []Group{full(16)}, UseEagle: true}
	for variant := 1; variant <= 6; variant++ {
		g := mamba(16)
		g.Variant, g.IsEagleGroup = variant, variant != 3
		p.Groups = append(p.Groups, g)
	}
	return p
}

// growingPool chooses a pool like growingPool: one mamba group is no eagle group.
func (s *source) growingPool() Pool {
	p := growingPool()
	p.Groups[3].IsEagleGroup = true
	p.Groups[1+s.below(6)].IsEagleGroup = false
	return p
}

// shortRequest chooses most blocks of a short prompt, and of group 0 none: what makes
// eagle groups look ahead again and again.
func (s *source) shortRequest(c *Coordinator) *findRequest {
	q := &findRequest{hashes: 6 + s.below(3)}
	for g := range c.NumGroups() {
		list := make([]bool, q.hashes)
		for i := range list {
			list[i] = g > 0 && s.below(10) < 7
		}
		q.stored, q.bits = append(q.stored, list), append(q.bits, bitsetFrom(list))
	}
	return q
}

// What lies further behind a gap than LookEnd never changes a hit.
func TestNothingBehindLookEndMatters(t *testing.T) {
	for seed := range uint64(20_000) {
		s := &source{data: randomBytes(seed, 200)}
		var c *Coordinator
		var q *findRequest
		if seed%2 == 0 {
			c = must(t, s.growingPool())
			q = s.shortRequest(c)
		} else {
			c = must(t, s.pool())
			q = s.findRequest(c)
		}
		maxLength := int64(q.hashes * c.pool.HashBlockSize / int(c.align) * int(c.align))
		p := Presence{NumHashes: q.hashes, Bits: q.bits}
		hit, err := c.FindHit(&p, maxLength, true, new(Scratch))
		end := int64(math.MaxInt64)
		for g := range c.groups {
			if list := q.stored; c.pool.Groups[g].Kind.IsFull() && list != nil {
				block := int64(c.pool.Groups[g].BlockSize)
				gap := gapOf(list[g], c.Stride(g)/c.KeyStride(g)) * block
				if c.fineGrained {
					gap += block // a hit may end inside the chunk with the gap
				}
				end = min(end, c.LookEnd(gap))
			}
		}
		if q.stored == nil || end == math.MaxInt64 {
			continue
		}
		for g := range p.Bits {
			below := int(min(end/int64(c.KeyStride(g)*c.pool.HashBlockSize), math.MaxInt))
			p.Bits[g] = bitsetFrom(q.stored[g][:min(below, len(q.stored[g]))])
		}
		cut, cutErr := c.FindHit(&p, maxLength, true, new(Scratch))
		require.Equal(t, errorClass(err), errorClass(cutErr))
		require.Equal(t, hit, cut, "pool %+v\nrequest %+v", c.pool, q)
	}
}

// gapOf returns the first chunk whose last position is not stored.
func gapOf(list []bool, positions int) int64 {
	n := 0
	for (n+1)*positions <= len(list) && list[(n+1)*positions-1] {
		n++
	}
	return int64(n)
}

// Lengths near the largest are as good as any beyond the hashes, also where an eagle group looks further.
func TestHugeLengthsOfEagleGroups(t *testing.T) {
	const n = 20
	for _, release := range Releases() {
		c := must(t, Pool{VLLM: release, UseEagle: true, Groups: []Group{full(16), {Kind: FullAttention, BlockSize: 32}}})
		p := &Presence{NumHashes: n, Bits: [][]uint64{{1<<n - 1}, {1<<(n/2) - 1}}}
		want, err := c.FindHit(p, 2*16*n, true, new(Scratch))
		require.NoError(t, err)
		require.Positive(t, want)
		for _, length := range []int64{1 << 40, math.MaxInt64/32*32 - 32, math.MaxInt64 / 32 * 32, math.MaxInt64} {
			hit, err := c.FindHit(p, length, true, new(Scratch))
			require.NoError(t, err)
			require.Equal(t, want, hit, "%s, %d tokens", release, length)
		}
	}
}
