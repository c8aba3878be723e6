package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
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
	return append(netproto.AppendLookup(nil, idEnvelope(id), netproto.TagPlan, uint32(len(hashes)/2), 32, len(hashes)), hashes...)
}

func maskOf(id string, tag netproto.Tag, p netproto.Prompt) []byte {
	return netproto.AppendMaskRequest(nil, idEnvelope(id), tag, &p)
}

// noMasks is the frame of masks of a hit of 0 in lookuptest.WindowPool.
var noMasks = u32s(0, 0, 0, 0, netproto.NoGroup, 0, 0, 0, 1, 0, 0, 0)

// TestMaskBytes is the example of docs/protocol.md.
func TestMaskBytes(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	for name, server := range windowServers(t, &lookuptest.KeyStore{}) {
		lookuptest.StorePrefix(t, server.service, chain, 8)
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
		)}, p.Ask(t, []byte("plan"), u32s(192), []byte{0, 32}, chain), name)
	}
}

// A plan is a lookup in counters and metrics. One that finds nothing has empty masks.
func TestPlanIsALookup(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	for name, server := range windowServers(t, &lookuptest.KeyStore{}) {
		lookuptest.StorePrefix(t, server.service, chain, 8)
		for _, c := range []*client.Client{dialTest(t, server), dialTest(t, server, client.WithPipeline())} {
			plan, err := c.Plan(t.Context(), 192, coordinator.NewHashes(chain, 32))
			require.NoError(t, err)
			hit, err := c.Lookup(t.Context(), 192, coordinator.NewHashes(chain, 32))
			require.NoError(t, err)
			masks, err := c.LoadMask(t.Context(), 12, 128)
			require.NoError(t, err)
			require.Equal(t, api.Plan{Hit: hit, Masks: masks}, plan, name)
			require.EqualValues(t, 128, hit.Tokens)
			plan, err = c.Plan(t.Context(), 192, coordinator.Hashes{})
			require.NoError(t, err)
			require.Equal(t, api.Plan{Masks: []api.Mask{{Group: 0}, {Group: api.NotStored}, {Group: 1}}}, plan, name)
		}
		stat := statOf(t, dialTest(t, server))
		require.EqualValues(t, 6, stat.Lookups, name)
		require.EqualValues(t, 4*128, stat.HitTokens, name)
		require.Zero(t, stat.Failed, name)
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
func TestMasksRefused(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	for name, server := range windowServers(t, &lookuptest.KeyStore{}) {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		for _, c := range []struct {
			want   string
			frames [][]byte
		}{
			{"hashes of another length than the pool's", [][]byte{[]byte("plan"), u32s(192), {0, 16}, chain}},
			{"a frame is missing", [][]byte{[]byte("plan"), u32s(192), {0, 32}}},
			{"not a multiple of 64", [][]byte{[]byte("lookup_mask"), u32s(65)}},
			{"not a multiple of 64", [][]byte{[]byte("store_mask"), u32s(65, 0, 0)}},
			{"the masks have more than 32768 runs", [][]byte{[]byte("lookup_mask"), u32s(64 * (netproto.MaxRuns/2 + 1))}},
			{"too short or too long for this request", [][]byte{[]byte("load_mask"), u32s(64)}},
			{"more frames than the request has", [][]byte{[]byte("lookup_mask"), u32s(64), nil}},
		} {
			frames := p.Ask(t, c.frames...)
			require.Len(t, frames, 2, c.want)
			require.Equal(t, []byte{netproto.StatusFailed}, frames[0], c.want)
			require.Contains(t, string(frames[1]), c.want, name)
		}
		require.EqualValues(t, 7, server.Stat().Failed, name)
		require.Zero(t, server.Stat().Lookups, name)
		frames := p.Ask(t, []byte("lookup_mask"), u32s(64*netproto.MaxRuns/2))
		require.Len(t, frames, 2)
		require.Len(t, frames[1], 3*16+8*netproto.MaxRuns, "as many runs as there may be")
		lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
	}
	server := startPools(t, nil, Config{AcceptPool: memoryService})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for _, request := range [][]byte{planOf("", chain), maskOf("", netproto.TagLookupMask, netproto.Prompt{})} {
		p.Send(t, request)
		_, body, text := p.Reply(t)
		require.Equal(t, "00", body)
		require.Contains(t, text, "no pool")
	}
}

// TestMasksDoNotAllocate runs whole requests through a session.
func TestMasksDoNotAllocate(t *testing.T) {
	if bufpool.Debug || lookuptest.Race {
		t.Skip("the traps of debug builds and the race detector allocate")
	}
	const n = 8192
	chain := lookuptest.Chain("a", n, 32)
	sparse, full := serverOf(t, lookuptest.WindowPool), serverOf(t, lookuptest.Blocks16)
	lookuptest.StorePrefix(t, sparse.service, chain, 64)
	lookuptest.StorePrefix(t, full.service, chain, n/2)
	for name, c := range map[string]struct {
		server *Server
		msg    []byte
	}{
		"plan of a window": {sparse, planOf("id", chain[:96*32])},
		"plan":             {full, planOf("id", chain)},
		"load_mask":        {sparse, maskOf("id", netproto.TagLoadMask, netproto.Prompt{NumTokens: 16 * n, NumHashes: n})},
		"store_mask":       {sparse, maskOf("id", netproto.TagStoreMask, netproto.Prompt{NumTokens: 16 * n, StartToken: 100, PromptTokens: 16*n + 5})},
		"lookup_mask":      {sparse, maskOf("id", netproto.TagLookupMask, netproto.Prompt{NumTokens: 16 * n})},
	} {
		var got replies
		ses := openSession(c.server, &got, nil)
		round := func() {
			for p := c.msg; len(p) > 0; {
				n := min(len(p), 65521) // odd, so that hashes are cut
				if err := turn(ses, p[:n]); err != nil {
					t.Fatal(err)
				}
				p = p[n:]
			}
		}
		round()
		head := len(idEnvelope("id"))
		require.Equal(t, []byte{1, 1, 1}, got.last[head:head+3], name)
		require.Zero(t, testing.AllocsPerRun(100, round), name)
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
	p.Expect(t, "a 01", "ping 01")
	close(g.Open)
	id, body, hit := p.Reply(t)
	require.Equal(t, []string{"plan", "01", string(u32s(0))}, []string{id, body, hit})
	id, _, masks := p.Reply(t)
	require.Equal(t, "plan", id)
	require.Equal(t, string(u32s(0, 0, 1, 1, 0, 1, netproto.NoGroup, 0, 0, 0, 1, 0, 4, 1, 3, 4)), masks)
}

// A plan without an answer of the store is a hit of 0, as a lookup: it is late, the backend is
// down, or it has waited behind a slow write for too long.
func TestRemotePlanWithoutTheStore(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	store, g := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(g, "", "")
	server := startServer(t, lookup.ServiceConfig{Pool: lookuptest.WindowPool, Backend: store,
		Remote: lookup.RemoteConfig{Timeout: 20 * time.Millisecond, WriteTimeout: lookuptest.Patience}}, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	nothing := [][]byte{{1}, u32s(0), noMasks}
	require.Equal(t, nothing, p.Ask(t, []byte("plan"), u32s(192), []byte{0, 32}, chain))
	require.Equal(t, nothing, p.Ask(t, []byte("plan"), u32s(192), []byte{0, 0}, nil), "no hashes")
	p.Send(t, plainOf("reset", netproto.TagReset), planOf("behind", chain))
	frames := p.Next(t)
	require.Equal(t, nothing, frames[2:])
	require.EqualValues(t, 3, server.Stat().Lookups)
	require.Zero(t, server.Stat().Failed)
	close(g.Open)
	p.Expect(t, "reset 01")

	failing := &lookuptest.KeyStore{Before: func(context.Context, string, []string) error { return lookuptest.ErrStore }}
	server = windowServers(t, failing)["backend"]
	p = lookuptest.DialPeer(t, server.Addrs()[0])
	for range 40 {
		require.Equal(t, nothing, p.Ask(t, []byte("plan"), u32s(192), []byte{0, 32}, chain))
	}
	require.Positive(t, server.Stat().BackendRejected, "the backend is not asked any more")
	require.EqualValues(t, 40, server.Stat().Lookups)
}

// Requests for masks count towards the limit of a connection while they cannot be answered.
func TestRemoteMasksInFlight(t *testing.T) {
	chain := lookuptest.Chain("a", 12, 32)
	store, g := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(g, "", "")
	server := startServer(t, lookup.ServiceConfig{Pool: lookuptest.WindowPool, Backend: store, Remote: patient}, Limits{MaxInFlight: 3})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	mask := maskOf("same", netproto.TagLookupMask, netproto.Prompt{NumTokens: 64})
	p.Send(t, planOf("same", chain), bytes.Repeat(mask, 5), maskOf("other", netproto.TagLookupMask, netproto.Prompt{NumTokens: 64}))
	p.Expect(t, "other 00")
	close(g.Open)
	p.Expect(t, "same 01", "same 01", "same 01", "same 00", "same 00", "same 00")
	lookuptest.Eventually(t, "nothing is left", func() bool { return server.inFlight.Load() == 0 })
	p.Send(t, mask)
	p.Expect(t, "same 01")
}

func u32s(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
