package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func retain(interval int) *int { return &interval }

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

func TestMaskRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		mask Mask
		text string
	}{
		{"zero value", Mask{}, ""},
		{"found", tailMask(2, 3), "FFTTT"},
		{"only nulls", tailMask(3, 0), "FFF"},
		{"periodic, shifted", Mask{n: 9, rule: periodic{1, 4, 2}}, "FFFTTFFTT"},
		{"cut in a run", Mask{n: 8, rule: periodic{1, 4, 2}}, "FFFTTFFT"},
		{"a range that joins runs", Mask{n: 9, rule: periodic{0, 4, 2}, extra: [2]run{{4, 6}}}, "FFTTTTTTF"},
		{"a range inside a gap", Mask{n: 8, rule: periodic{0, 8, 1}, extra: [2]run{{3, 5}}}, "FFFTTFFT"},
		{"a range behind the end", Mask{n: 4, extra: [2]run{{2, 9}}}, "FFTT"},
		{"with an origin", Mask{n: 6, origin: 3, rule: periodic{0, 4, 1}}, "TFFFTF"},
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

func TestStoreGroup(t *testing.T) {
	scratch := Group{Kind: SlidingWindowMLA, BlockSize: 16, SlidingWindow: 17, BoundedReplay: true}
	c := must(t, Pool{VLLM: NewestRelease(), Groups: []Group{scratch, full(16), scratch, scratch, mamba(16), scratch}})
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
