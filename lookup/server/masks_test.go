package server

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// windowServers returns running servers of lookuptest.WindowPool over the memory index and over a store.
func windowServers(t testing.TB, store *lookuptest.KeyStore) map[string]*Server {
	return map[string]*Server{
		"memory":  startServer(t, lookup.ServiceConfig{Pool: lookuptest.WindowPool}, Limits{}),
		"backend": startServer(t, lookup.ServiceConfig{Pool: lookuptest.WindowPool, Backend: store, Remote: patient}, Limits{}),
	}
}

func planOf(id string, hashes []byte) []byte {
	return append(netproto.AppendLookupFrom(nil, idEnvelope(id), netproto.TagPlan, uint32(len(hashes)/2), 0, 32, len(hashes)), hashes...)
}

func maskOf(id string, tag netproto.Tag, p netproto.Prompt) []byte {
	return netproto.AppendMaskRequest(nil, idEnvelope(id), tag, &p)
}

// TestMaskBytes has the bytes of masks and plans, also of a group that is not kept in the store.
func TestMaskBytes(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	for name, server := range windowServers(t, &lookuptest.KeyStore{}) {
		lookuptest.StorePrefix(t, server.pools.own.service, chain, 8)
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		require.Equal(t, [][]byte{{1}, u32s(
			0, 2, 3, 1<<32-1,
			netproto.NoGroup, 7, 12, 2, 7, 8, 11, 12,
			1, 7, 12, 2, 7, 8, 11, 12,
		)}, p.Ask(t, []byte("store_mask"), u32s(192, 100, netproto.PromptTokensUnknown)), name)
		require.Equal(t, [][]byte{{1}, u32s(128, 0, 128, 1, 128), u32s(
			0, 0, 2, 1, 0, 2,
			netproto.NoGroup, 0, 0, 0,
			1, 0, 8, 1, 7, 8,
		)}, p.Ask(t, []byte("plan"), u32s(192, 0), []byte{0, 32}, chain), name)
	}
}

// A plan is a lookup in counters and metrics. One that finds nothing has empty masks.
func TestPlanIsALookup(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	for name, server := range windowServers(t, &lookuptest.KeyStore{}) {
		lookuptest.StorePrefix(t, server.pools.own.service, chain, 8)
		for range 2 {
			c := dialTest(t, server)
			plan, err := c.Plan(t.Context(), 192, coordinator.NewHashes(chain, 32))
			require.NoError(t, err)
			hit, err := c.Lookup(t.Context(), 192, coordinator.NewHashes(chain, 32))
			require.NoError(t, err)
			masks, err := c.LoadMask(t.Context(), 128, 12)
			require.NoError(t, err)
			require.Equal(t, api.Plan{Hit: hit, Masks: masks}, plan, name)
			require.EqualValues(t, 128, hit.Tokens)
			plan, err = c.Plan(t.Context(), 192, coordinator.Hashes{})
			require.NoError(t, err)
			require.Equal(t, api.Plan{Masks: []api.GroupMask{{Group: 0}, {Group: api.NotStored}, {Group: 1}}}, plan, name)
		}
		stat := statOf(t, dialTest(t, server))
		require.EqualValues(t, 6, stat.Lookups, name)
		require.Zero(t, stat.RequestsRefused, name)
		lookuptest.Eventually(t, name, func() bool {
			var all uint64
			for _, n := range server.LookupDurations().Counts {
				all += n
			}
			return all == 6
		})
		require.Equal(t, float64(48), server.LookupHashes().Sum, name)
	}
}

// What is refused gets 00, at every release: these requests are new.
// As many runs as there may be are told.
func TestMasksOfManyRuns(t *testing.T) {
	for name, server := range windowServers(t, &lookuptest.KeyStore{}) {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		frames := p.Ask(t, []byte("lookup_mask"), u32s(64*api.MaxRuns/2))
		require.Len(t, frames, 2, name)
		require.Len(t, frames[1], 3*16+8*api.MaxRuns, name)
		lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
	}
}

// Masks need no store: they overtake what waits for one, unless the envelopes are equal.
func TestRemoteMasksDoNotWait(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	store, g := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(g, "", "")
	p := lookuptest.DialPeer(t, windowServers(t, store)["backend"].Addrs()[0])
	p.Send(t, planOf("plan", chain), maskOf("a", netproto.TagLookupMask, netproto.Prompt{NumTokens: 64}),
		maskOf("plan", netproto.TagLoadMask, netproto.Prompt{NumTokens: 64, NumHashes: 4}), plainOf("ping", netproto.TagPing))
	var before []string
	for range 2 {
		id, body, _ := p.Reply(t)
		before = append(before, id+" "+body)
	}
	require.ElementsMatch(t, []string{"a 01", "ping 01"}, before)
	close(g.Open)
	id, body, hit := p.Reply(t)
	require.Equal(t, []string{"plan", "01", string(u32s(0))}, []string{id, body, hit})
	id, _, masks := p.Reply(t)
	require.Equal(t, "plan", id)
	require.Equal(t, string(u32s(0, 0, 1, 1, 0, 1, netproto.NoGroup, 0, 0, 0, 1, 0, 4, 1, 3, 4)), masks)
}

func u32s(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
