package access

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// TestPermissionOfEachRequest checks every request there is, so that a new one cannot be forgotten.
func TestPermissionOfEachRequest(t *testing.T) {
	want := map[string]Permissions{
		"lookup": Lookup, "lookup_from": Lookup, "renew": Lookup, "plan": Plan, "load_mask": Plan, "store_mask": Plan, "lookup_mask": Plan,
		"explain": Explain, "stat": Stat, "ping": Ping, "pool": Pool,
		"store": Store, "store_prompt": Store, "evict": Evict, "reset": Reset, "reset_rank": Reset,
	}
	requests := 0
	for tag := netproto.TagUnknown + 1; tag.String() != netproto.TagUnknown.String(); tag++ {
		if tag == netproto.TagAuth {
			continue
		}
		requests++
		needed, ok := want[tag.String()]
		require.True(t, ok, "%s needs no permission", tag)
		require.True(t, needed.Allows(tag), tag)
		require.False(t, (All &^ needed).Allows(tag), tag)
	}
	require.Len(t, want, requests)
	for _, tag := range []netproto.Tag{netproto.TagAuth, netproto.TagUnknown, 255} {
		require.True(t, Permissions(0).Allows(tag), "it is answered, or refused for another reason")
	}
}

func TestPermissionNames(t *testing.T) {
	for i, name := range names {
		p, err := ParsePermissions([]string{name, name})
		require.NoError(t, err)
		require.Equal(t, Permissions(1)<<i, p)
		require.Equal(t, []string{name}, p.Names())
	}
	require.Equal(t, names[:], All.Names())
	p, err := ParsePermissions(All.Names())
	require.NoError(t, err)
	require.Equal(t, All, p)
	require.Equal(t, Permissions(1)<<len(names)-1, All)
	require.Equal(t, "lookup, plan, explain, stat, ping, holders", ReadOnly.String())
	require.Equal(t, []string{}, Permissions(0).Names(), "[] in JSON, not null")

	p, err = ParsePermissions(nil)
	require.NoError(t, err)
	require.Zero(t, p)
	for _, bad := range []string{"", "all", "Lookup", "auth", "load_mask", "store_prompt", "reset_rank", " ping"} {
		p, err := ParsePermissions([]string{"ping", bad})
		require.ErrorContains(t, err, "lookup, plan", bad)
		require.Zero(t, p)
	}
	list := All.Names()
	slices.Reverse(list)
	require.Equal(t, names[:], All.Names(), "the caller owns the result")
}
