package held

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A holder has its share whatever others do. What it keeps unread counts as small.
func TestHolder(t *testing.T) {
	a := New(1000, 100)
	holders := make([]Holder, 20)
	for i := range holders {
		n := int64(1)
		for a.Set(&holders[i], n, 0, false) {
			n++
		}
		require.GreaterOrEqual(t, holders[i].Bytes(), int64(100), i)
	}
	require.InDelta(t, 750, a.Held(), 5)
	var other Holder
	require.True(t, a.Fits(&other, 100))
	require.False(t, a.Fits(&other, 150))
	require.Zero(t, other.Bytes())
	require.False(t, a.Set(&other, 150, 10, false))
	require.Zero(t, other.Bytes())
	require.True(t, a.Set(&other, 200, 100, false), "a quarter is for what is kept")
	require.EqualValues(t, 100, a.Admitted(&other))
	require.False(t, a.Set(&other, 210, 100, false), "more large bytes")
	require.False(t, a.Set(&other, 300, 200, false), "more than is left then")
	require.False(t, a.Set(&other, 200, 0, false), "it is kept no longer")
	require.True(t, a.Set(&other, 200, 0, true), "no more than before, while it waits")
	require.True(t, a.Set(&other, 250, 50, true), "more than is left then, while it waits")
	require.True(t, a.Set(&other, 100, 0, false))
	require.True(t, a.Set(&other, 180, 80, false))
	for i := range holders {
		require.True(t, a.Set(&holders[i], int64(i), 0, false))
	}
	require.EqualValues(t, 80, a.Held())
	require.True(t, a.Fits(&other, 180), "kept or not")
	require.True(t, a.Set(&other, 0, 0, false))
	require.Zero(t, a.Held())
	require.EqualValues(t, 750, a.Left(false))
}

// Bounds that change leave nobody with bytes that nobody holds, nor the other way round.
func TestResize(t *testing.T) {
	a := New(1000, 100)
	var h, other Holder
	require.True(t, a.Set(&h, 300, 50, false))
	require.True(t, a.Set(&other, 150, 0, false))
	require.EqualValues(t, 250, a.Held())
	a.Resize(400, 20)
	require.EqualValues(t, 300, h.Bytes(), "what is held stays")
	require.EqualValues(t, 150, a.MaxRequest())
	require.False(t, a.Set(&h, 301, 50, false))
	require.True(t, a.Set(&h, 40, 0, false))
	require.EqualValues(t, 20+50, a.Held(), "beyond the new share")
	a.Resize(1000, 200)
	require.True(t, a.Set(&other, 250, 0, false))
	require.EqualValues(t, 20+50, a.Held())
	require.True(t, a.Set(&h, 0, 0, false))
	require.True(t, a.Set(&other, 0, 0, false))
	require.Zero(t, a.Held())
	require.EqualValues(t, 750, a.Left(false))
}

// fakeEvictable holds memory.
type fakeEvictable struct {
	bytes        int64
	ending, late bool
	evicted      bool
}

func (h *fakeEvictable) Admitted() int64 { return h.bytes }
func (h *fakeEvictable) IsEnding() bool  { return h.ending }
func (h *fakeEvictable) IsLate() bool    { return h.late }
func (h *fakeEvictable) Evict()          { h.evicted = true }

// Memory is freed of those who are late and hold most, no more than is short. What ends anyhow counts.
func TestWhoIsEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		over int64
		all  []fakeEvictable
		want []int
	}{
		"the largest first":     {100, []fakeEvictable{{bytes: 10, late: true}, {bytes: 90, late: true}, {bytes: 20, late: true}}, []int{1, 2}},
		"nobody who is in time": {100, []fakeEvictable{{bytes: 500}, {bytes: 10, late: true}}, []int{1}},
		"who ends is enough":    {100, []fakeEvictable{{bytes: 100, ending: true, late: true}, {bytes: 300, late: true}}, nil},
		"who ends is too few":   {101, []fakeEvictable{{bytes: 100, ending: true}, {bytes: 300, late: true}, {bytes: 2, late: true}}, []int{1}},
		"who holds nothing":     {1, []fakeEvictable{{late: true}}, nil},
	} {
		all := make([]Evictable, len(c.all))
		for i := range c.all {
			all[i] = &c.all[i]
		}
		EvictLate(c.over, all)
		var evicted []int
		for i, h := range c.all {
			if h.evicted {
				evicted = append(evicted, i)
			}
		}
		require.True(t, slices.Equal(c.want, evicted), "%s: %v", name, evicted)
	}
}
