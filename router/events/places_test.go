package events

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A removal that says less than the event that stored removes all that it may mean, and so does
// one that says more.
func TestPlacesMatching(t *testing.T) {
	local, remote := Tier{Medium: "GPU", Locality: "LOCAL"}, Tier{Medium: "GPU", Locality: "REMOTE"}
	var p places
	for _, at := range []place{{NoGroup, gpu}, {0, local}, {0, remote}, {1, gpu}, {0, Tier{Medium: "CPU"}}} {
		_, err := p.findOrAdd(at.group, &at.tier)
		require.NoError(t, err)
	}
	for _, test := range []struct {
		group int
		tier  Tier
		want  []placeID
	}{
		{NoGroup, Tier{}, []placeID{0, 1, 2, 3, 4}},
		{0, Tier{}, []placeID{0, 1, 2, 4}},
		{NoGroup, gpu, []placeID{0, 1, 2, 3}},
		{NoGroup, Tier{Medium: "CPU"}, []placeID{4}},
		{0, local, []placeID{0, 1}},
		{1, gpu, []placeID{0, 3}},
		{2, gpu, []placeID{0}},
	} {
		require.Equal(t, test.want, p.matching(nil, test.group, &test.tier), "%+v", test)
	}
}

func TestPlacesAreBounded(t *testing.T) {
	var p places
	refused := func(group int, tier Tier) {
		t.Helper()
		_, err := p.findOrAdd(group, &tier)
		require.ErrorIs(t, err, ErrPlaces)
	}
	refused(maxGroup+1, Tier{})
	refused(NoGroup-1, Tier{})
	for i := range maxTiers {
		_, err := p.findOrAdd(0, &Tier{Medium: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	refused(0, gpu)
	first := Tier{Medium: "0"}
	for i := range maxPlaces - maxTiers {
		_, err := p.findOrAdd(i+1, &first)
		require.NoError(t, err)
	}
	refused(maxGroup, first)
	require.Len(t, p.list, maxPlaces)
	at, ok := p.find(1, &first)
	require.True(t, ok)
	require.EqualValues(t, slices.Index(p.list, place{1, first}), at)
}
