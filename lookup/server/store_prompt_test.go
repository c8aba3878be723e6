package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// promptRequest encodes a store_prompt.
func promptRequest(t testing.TB, p api.PromptStore, hashes []byte, hashLen int) []byte {
	t.Helper()
	prompt := netproto.Prompt{
		NumTokens: uint32(p.NumTokens), StartToken: uint32(p.StartToken), PromptTokens: uint32(p.PromptTokens), FirstHash: uint32(p.FirstHash),
	}
	if p.PromptTokens == 0 {
		prompt.PromptTokens = netproto.PromptTokensUnknown
	}
	for _, r := range p.Ranks {
		prompt.AddRank(netproto.WireRank(r))
	}
	for _, s := range p.States {
		prompt.AddState(uint32(s.Group), uint32(s.Tokens))
	}
	return append(netproto.AppendStorePrompt(nil, nil, &prompt, hashLen, len(hashes)), hashes...)
}

// promptPool has groups of unequal blocks on four ranks.
var promptPool = coordinator.Pool{HashBlockSize: 16, SchedulerBlockSize: 256, TPSize: 4, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.FullAttention, BlockSize: 64},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
}}

// TestStorePromptByClient stores through a client.
func TestStorePromptByClient(t *testing.T) {
	for _, backend := range []bool{false, true} {
		t.Run(fmt.Sprintf("backend=%t", backend), func(t *testing.T) {
			cfg := lookup.ServiceConfig{Pool: promptPool}
			if backend {
				cfg.Backend, cfg.Remote = &lookuptest.KeyStore{}, patient
			}
			c := dialTest(t, startServer(t, cfg, Limits{}))
			hashes := coordinator.NewHashes(lookuptest.Chain("client", 1600, 32), 32)
			stored, err := c.StorePrompt(t.Context(), api.PromptStore{NumTokens: 25600}, hashes)
			require.NoError(t, err)
			require.Equal(t, []int64{1600, 400, 400}, stored)
			hit, err := c.Lookup(t.Context(), 25600, hashes)
			require.NoError(t, err)
			require.EqualValues(t, 25600, hit.Tokens)
			_, err = c.StorePrompt(t.Context(), api.PromptStore{NumTokens: 25616 + 256}, hashes)
			require.ErrorIs(t, err, client.ErrRefused)
			require.ErrorContains(t, err, "hash 1600 is missing")
			_, err = c.StorePrompt(t.Context(), api.PromptStore{NumTokens: 1 << 40}, hashes)
			require.ErrorIs(t, err, client.ErrRequest)
			require.ErrorIs(t, err, api.ErrPrompt)
		})
	}
}

// TestStorePromptCutInTheMiddle: a prompt that does not arrive whole is not stored, and what it held is free.
func TestStorePromptCutInTheMiddle(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, Settings{})
		hashes := lookuptest.Chain("cut", 4096, 32)
		message := promptRequest(t, api.PromptStore{NumTokens: 65536}, hashes, 32)
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, message[:len(message)-7])
		lookuptest.Eventually(t, "it has arrived", func() bool { return server.heldBytes() >= 4095*32 })
		require.NoError(t, p.Close())
		lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 && server.heldBytes() == 0 })
		require.Zero(t, server.Stat().Entries)
		require.Zero(t, server.Stat().Stored)
		if store != nil {
			require.Zero(t, store.Calls.Load())
		}
	})
}

// TestStorePromptOverABackendKeepsItsOrder: lookups behind a prompt wait for it.
func TestStorePromptOverABackendKeepsItsOrder(t *testing.T) {
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "store", "")
	server := startRemote(t, store, patient, Limits{})
	hashes := lookuptest.Chain("order", 100, 32)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, promptRequest(t, api.PromptStore{NumTokens: 1600}, hashes, 32),
		append(netproto.AppendLookup(nil, nil, 1600, 32, len(hashes)), hashes...))
	lookuptest.Eventually(t, "the prompt is being stored", func() bool { return gate.Held.Load() == 1 })
	close(gate.Open)
	require.Equal(t, [][]byte{{1}, {0, 0, 0, 100}}, p.Next(t))
	require.Equal(t, [][]byte{{0, 0, 1600 >> 8, 1600 & 255}}, p.Next(t))
}

// TestStorePromptMemoryIsCounted: the ranks of a prompt are charged, and freed with it.
func TestStorePromptMemoryIsCounted(t *testing.T) {
	const numRanks = 2048
	pool := coordinator.Pool{HashBlockSize: 16, TPSize: numRanks}
	ranks := make([]coordinator.GroupRank, numRanks)
	for i := range ranks {
		ranks[i].TPRank = uint16(i)
	}
	hashes := lookuptest.Chain("held", 2, 32)
	message := promptRequest(t, api.PromptStore{NumTokens: 32, Ranks: ranks}, hashes, 32)
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "store", "")
	server := startServer(t, lookup.ServiceConfig{Pool: pool, Backend: store, Remote: patient}, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, message[:len(message)-32])
	lookuptest.Eventually(t, "those of one that arrives", func() bool { return server.heldBytes() >= 6*numRanks })
	p.Send(t, message[len(message)-32:])
	lookuptest.Eventually(t, "a worker stores it", func() bool { return gate.Held.Load() == 1 })
	lookuptest.Eventually(t, "those of one that a worker has", func() bool { return server.heldBytes() >= 6*numRanks })
	close(gate.Open)
	require.Equal(t, [][]byte{{1}, {0, 0, 0, 2}}, p.Next(t))
	lookuptest.Eventually(t, "they are freed", func() bool { return server.heldBytes() < 6*numRanks })
}
