package coordinator

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func retain(interval int) *int { return &interval }

// The worked examples of the specification and of the reference's own tests.
func TestStoreMaskExamples(t *testing.T) {
	hybrid := func(size int, r *int) Pool {
		return Pool{HashBlockSize: 8, RetentionInterval: r, Groups: []Group{full(32), window(8, size)}}
	}
	for _, tc := range []struct {
		name                   string
		pool                   Pool
		aligned, start, prompt int64
		masks                  []string
	}{
		{"window around each boundary", hybrid(8, nil), 64, 0, NoPrompt, []string{"all of 2", "FFFTFFFT"}},
		{"a wider window keeps more", hybrid(16, nil), 64, 0, NoPrompt, []string{"all of 2", "FFTTFFTT"}},
		{"no tokens", hybrid(8, nil), 0, 0, NoPrompt, []string{"all of 0", ""}},
		{"interval of two blocks", hybrid(8, retain(64)), 128, 0, NoPrompt, []string{"all of 4", "FFFFFFFTFFFFFFFT"}},
		{"interval 0 keeps nothing", hybrid(8, retain(0)), 128, 0, NoPrompt, []string{"all of 4", "FFFFFFFFFFFFFFFF"}},
		{"interval 0 and a prompt", hybrid(8, retain(0)), 128, 0, 100, []string{"all of 4", "FFFFFFFFFFFTFFFF"}},
		{"interval and prompt", hybrid(8, retain(64)), 128, 0, 100, []string{"all of 4", "FFFFFFFTFFFTFFFT"}},
		{"prompt without interval", hybrid(8, nil), 64, 0, 40, []string{"all of 2", "FFFTFFFT"}},
		{"a prompt of no tokens", hybrid(8, retain(0)), 64, 0, 0, []string{"all of 2", "FFFFFFFF"}},
		{
			"eagle shifts by one", Pool{HashBlockSize: 8, Groups: []Group{full(32), eagle(window(8, 8))}},
			64, 0, NoPrompt, []string{"all of 2", "FFFTTFFT"},
		},
		{"a window of one token", hybrid(1, nil), 64, 0, NoPrompt, []string{"all of 2", "FFFFFFFF"}},
		{"all blocks equal", Pool{Groups: []Group{full(16), window(16, 32)}}, 64, 0, NoPrompt, []string{"all of 4", "all of 4"}},
		{
			"each group by its own flag", Pool{HashBlockSize: 8, SchedulerBlockSize: 32, Groups: []Group{window(8, 8), eagle(window(8, 8))}},
			64, 0, NoPrompt, []string{"FFFTFFFT", "FFFTTFFT"},
		},
		{
			"0.27.0: equal specs share the flag",
			Pool{VLLM: "0.28.0", HashBlockSize: 8, SchedulerBlockSize: 32, Groups: []Group{window(8, 8), eagle(window(8, 8))}},
			64, 0, NoPrompt, []string{"FFFTTFFT", "FFFTTFFT"},
		},
		{
			"0.27.0: from a start token",
			Pool{VLLM: "0.28.0", HashBlockSize: 8, Groups: []Group{full(32), window(8, 8)}},
			128, 41, NoPrompt, []string{"all of 2", "FTFFFTFFFT"},
		},
		{
			"0.27.0: start behind the end",
			Pool{VLLM: "0.28.0", HashBlockSize: 8, Groups: []Group{full(32), window(8, 8)}},
			32, 64, NoPrompt, []string{"all of 0", ""},
		},
		{
			"0.27.0: mamba states are thinned out",
			Pool{VLLM: "0.28.0", RetentionInterval: retain(64), Groups: []Group{mamba(16)}},
			128, 0, 100, []string{"FFFTFTFT"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			masks, err := must(t, tc.pool).StoreMask(tc.aligned, tc.start, tc.prompt)
			require.NoError(t, err)
			assert.Equal(t, tc.masks, showAll(masks))
		})
	}
}

func TestMaskErrors(t *testing.T) {
	c := must(t, Pool{})
	for _, n := range []int64{8, -8, 17} {
		_, err := c.StoreMask(n, 0, NoPrompt)
		require.ErrorIs(t, err, ErrPrecondition)
		_, err = c.LookupMask(n)
		require.ErrorIs(t, err, ErrPrecondition)
	}
	for _, start := range []int64{16, -16} {
		_, err := c.StoreMask(16, start, NoPrompt)
		require.ErrorIs(t, err, ErrPrecondition, "no start token before 0.25.0")
	}
}

// Masks of a shorter length are prefixes of those of a longer one: what was
// stored stays right as a request grows.
func TestStoreMaskIsPrefixStable(t *testing.T) {
	for _, r := range []*int{nil, retain(0), retain(96)} {
		c := must(t, Pool{HashBlockSize: 8, RetentionInterval: r, Groups: []Group{full(32), eagle(window(8, 9))}})
		longest, err := c.StoreMask(512, 0, 300)
		require.NoError(t, err)
		for n := int64(0); n < 512; n += 32 {
			masks, err := c.StoreMask(n, 0, 300)
			require.NoError(t, err)
			assert.Equal(t, show(longest[1])[:n/8], show(masks[1]))
		}
	}
}

func TestStoreMaskFromStartIsTheTail(t *testing.T) {
	c := must(t, Pool{
		VLLM: "0.28.0", HashBlockSize: 8, RetentionInterval: retain(64),
		Groups: []Group{full(32), window(8, 20), mamba(16)},
	})
	whole, err := c.StoreMask(256, 0, 200)
	require.NoError(t, err)
	for start := range int64(260) {
		masks, err := c.StoreMask(256, start, 200)
		require.NoError(t, err)
		for g, block := range []int64{32, 8, 16} {
			assert.Zero(t, whole[g].First())
			assert.Equal(t, min(whole[g].Len(), ceilDiv(start, block)), masks[g].First())
			if whole[g].IsAll() {
				assert.True(t, masks[g].IsAll())
				continue
			}
			want := show(whole[g])
			assert.Equal(t, want[min(int64(len(want)), ceilDiv(start, block)):], show(masks[g]))
		}
	}
}

func TestLookupMaskIgnoresRetention(t *testing.T) {
	c := must(t, Pool{HashBlockSize: 8, RetentionInterval: retain(0), Groups: []Group{full(32), window(8, 8)}})
	masks, err := c.LookupMask(64)
	require.NoError(t, err)
	assert.Equal(t, []string{"all of 2", "FFFTFFFT"}, showAll(masks))
	assert.Equal(t, int64(math.MaxInt64), c.KeyMask(1).Len())
	assert.True(t, c.KeyMask(0).IsAll())
	assert.True(t, c.KeyMask(1).At(1<<40+3))
}

func TestLoadMaskExamples(t *testing.T) {
	for _, tc := range []struct {
		name   string
		groups []Group
		eagle  bool
		hashes int
		tokens int64
		masks  []string
		err    error
	}{
		{"only the window is loaded", []Group{window(16, 32)}, false, 4, 64, []string{"FFTT"}, nil},
		{"full attention", []Group{full(16)}, false, 4, 64, []string{"TTTT"}, nil},
		{"eagle does not drop again", []Group{full(16)}, true, 4, 48, []string{"TTT"}, nil},
		{"hybrid with eagle", []Group{full(16), window(16, 32)}, true, 4, 48, []string{"TTT", "FTT"}, nil},
		{"mamba", []Group{mamba(16)}, false, 4, 64, []string{"FFFT"}, nil},
		{"too few hashes", []Group{mamba(16)}, false, 3, 64, nil, ErrIndexOutOfRange},
	} {
		t.Run(tc.name, func(t *testing.T) {
			masks, err := must(t, Pool{UseEagle: tc.eagle, Groups: tc.groups}).LoadMask(tc.tokens, tc.hashes)
			require.ErrorIs(t, err, tc.err)
			if tc.err == nil {
				assert.Equal(t, tc.masks, showAll(masks))
			}
		})
	}
}

func TestMaskRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		mask Mask
		text string
	}{
		{"zero value", Mask{}, ""},
		{"found", tailMask(2, 3), "FFTTT"},
		{"only nulls", tailMask(3, 0), "FFF"},
		{"periodic, shifted", Mask{n: 9, shift: 1, period: 4, tail: 2}, "FFFTTFFTT"},
		{"cut in a run", Mask{n: 8, shift: 1, period: 4, tail: 2}, "FFFTTFFT"},
		{"a range that joins runs", Mask{n: 9, period: 4, tail: 2, extra: [2]run{{4, 6}}}, "FFTTTTTTF"},
		{"a range inside a gap", Mask{n: 8, period: 8, tail: 1, extra: [2]run{{3, 5}}}, "FFFTTFFT"},
		{"a range behind the end", Mask{n: 4, extra: [2]run{{2, 9}}}, "FFTT"},
		{"with an origin", Mask{n: 6, origin: 3, period: 4, tail: 1}, "TFFFTF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.text, show(tc.mask))
			text := make([]byte, tc.mask.Len())
			for i := range text {
				text[i] = 'F'
			}
			last := int64(-1)
			for start, end := range tc.mask.Runs() {
				assert.Less(t, last, start, "runs do not touch")
				assert.Less(t, start, end)
				for i := start; i < end; i++ {
					text[i] = 'T'
				}
				last = end
			}
			assert.Equal(t, tc.text, string(text))
			assert.False(t, tc.mask.At(-1))
			assert.False(t, tc.mask.At(tc.mask.Len()))
		})
	}
}

// The sentinel knows how long it is for this request: who goes through its
// entries, or its runs, stores every chunk and ends.
func TestSentinelHasALength(t *testing.T) {
	for _, tc := range []struct {
		name           string
		pool           Pool
		aligned, start int64
		want           []int64
	}{
		{"an ordinary pool", Pool{}, 64, 0, []int64{4}},
		{"no tokens", Pool{}, 0, 0, []int64{0}},
		{"a negative length", Pool{}, -64, 0, []int64{0}},
		{"groups of unequal blocks", Pool{HashBlockSize: 8, Groups: []Group{full(32), mamba(8)}}, 64, 0, []int64{2, 8}},
		{"0.27.0: from a start token", Pool{VLLM: "0.28.0"}, 64, 17, []int64{2}},
		{"0.27.0: a negative start", Pool{VLLM: "0.28.0"}, 64, -17, []int64{4}},
		{"0.27.0: a start behind the end", Pool{VLLM: "0.28.0"}, 64, 999, []int64{0}},
		{
			"0.27.0: whole chunks only",
			Pool{VLLM: "0.28.0", HashBlockSize: 8, Groups: []Group{full(32), align(mamba(16))}}, 56, 0, []int64{1, 3},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := must(t, tc.pool)
			masks, err := c.StoreMask(tc.aligned, tc.start, NoPrompt)
			require.NoError(t, err)
			if tc.start == 0 {
				lookups, err := c.LookupMask(tc.aligned)
				require.NoError(t, err)
				assert.Equal(t, masks, lookups)
			}
			for g, want := range tc.want {
				m := masks[g]
				assert.True(t, m.IsAll())
				assert.Equal(t, want, m.Len(), "group %d", g)
				assert.Equal(t, want > 0, m.At(want-1), "the last entry of group %d", g)
				assert.False(t, m.At(want))
				assert.False(t, m.At(-1))
				last := int64(0)
				for start, end := range m.Runs() {
					assert.Zero(t, start)
					last = end
				}
				assert.Equal(t, want, last, "the end of group %d's run", g)
			}
		})
	}
}

func TestMasksDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := must(t, Pool{VLLM: "0.33.0", HashBlockSize: 16, RetentionInterval: retain(128), Groups: []Group{
		full(64), eagle(window(16, 40)), {Kind: SlidingWindowMLA, BlockSize: 16, SlidingWindow: 17, BoundedReplay: true}, mamba(32),
	}})
	var s Scratch
	var masks []Mask
	all := func() {
		masks = masks[:0]
		masks, _ = c.AppendLoadMask(masks, 1024, 64, &s)
		masks, _ = c.AppendStoreMask(masks, 1024, 100, 900)
		masks, _ = c.AppendLookupMask(masks, 1024)
		masks = c.AppendEmptyMasks(masks)
	}
	all()
	assert.Zero(t, testing.AllocsPerRun(20, all))
	want := func(list []Mask, err error) []Mask {
		require.NoError(t, err)
		return list
	}
	assert.Equal(t, slices.Concat(want(c.LoadMask(1024, 64)), want(c.StoreMask(1024, 100, 900)), want(c.LookupMask(1024)), make([]Mask, 4)), masks)
}

func TestStoreGroup(t *testing.T) {
	scratch := Group{Kind: SlidingWindowMLA, BlockSize: 16, SlidingWindow: 17, BoundedReplay: true}
	c := must(t, Pool{VLLM: "0.33.0", Groups: []Group{scratch, full(16), scratch, scratch, mamba(16), scratch}})
	var got []int
	for i := range c.pool.Groups {
		got = append(got, c.StoreGroup(i))
	}
	assert.Equal(t, []int{-1, 0, -1, -1, 1, -1}, got)
	assert.Equal(t, -1, c.StoreGroup(6))
	for g := range c.NumGroups() {
		assert.Equal(t, g, c.StoreGroup(c.PoolIndex(g)))
	}
}
