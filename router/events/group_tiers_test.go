package events

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A removal that says less than the event that stored removes all that it may mean, and so does
// one that says more.
func TestGroupTiersMatching(t *testing.T) {
	local, remote := Tier{Medium: "GPU", Locality: "LOCAL"}, Tier{Medium: "GPU", Locality: "REMOTE"}
	var g GroupTiers
	for _, at := range []GroupTier{{NoGroup, gpu}, {0, local}, {0, remote}, {1, gpu}, {0, Tier{Medium: "CPU"}}} {
		_, err := g.FindOrAdd(at.Group, &at.Tier)
		require.NoError(t, err)
	}
	for _, test := range []struct {
		group int
		tier  Tier
		want  []uint32
	}{
		{NoGroup, Tier{}, []uint32{0, 1, 2, 3, 4}},
		{0, Tier{}, []uint32{0, 1, 2, 4}},
		{NoGroup, gpu, []uint32{0, 1, 2, 3}},
		{NoGroup, Tier{Medium: "CPU"}, []uint32{4}},
		{0, local, []uint32{0, 1}},
		{1, gpu, []uint32{0, 3}},
		{2, gpu, []uint32{0}},
	} {
		require.Equal(t, test.want, g.appendMatching(nil, test.group, &test.tier), "%+v", test)
	}
}

func TestGroupTiersAreBounded(t *testing.T) {
	g := GroupTiers{Max: 3}
	refused := func(group int, tier Tier) {
		t.Helper()
		_, err := g.FindOrAdd(group, &tier)
		require.ErrorIs(t, err, ErrTiers)
	}
	refused(maxGroup+1, Tier{})
	refused(NoGroup-1, Tier{})
	refused(0, Tier{Ownership: strings.Repeat("x", MaxName+1)})
	for range 2 {
		for i := range 3 {
			number, err := g.FindOrAdd(i, &gpu)
			require.NoError(t, err)
			require.EqualValues(t, i, number)
		}
	}
	refused(3, gpu)
	require.Equal(t, 3, g.Len())
	g.Free(2)
	_, known := g.Find(2, &gpu)
	require.False(t, known)
	reused, err := g.FindOrAdd(3, &gpu)
	require.NoError(t, err)
	require.EqualValues(t, 2, reused)
	refused(2, gpu)
	number, ok := g.Find(1, &gpu)
	require.True(t, ok)
	require.EqualValues(t, 1, number)
}
