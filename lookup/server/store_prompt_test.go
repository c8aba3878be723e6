package server

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/oracle"
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

// randomWirePool returns a random pool.
func randomWirePool(t *testing.T, r *rand.Rand) (pool coordinator.Pool) {
	t.Helper()
	text, err := json.Marshal(oracle.RandomPool(r))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &pool))
	return pool
}

// TestStorePromptInRandomCuts sends prompts in random cuts, over memory and over a backend. Their
// replies must be those of a service in process, and lookups afterwards too.
func TestStorePromptInRandomCuts(t *testing.T) {
	pools := 40
	if lookuptest.Race || testing.Short() {
		pools = 15
	}
	found := 0
	for seed := range uint64(pools) {
		r := rand.New(rand.NewPCG(seed, 5))
		pool := randomWirePool(t, r)
		reference, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
		require.NoError(t, err)
		c := reference.Coordinator()
		memory := startServer(t, lookup.ServiceConfig{Pool: pool}, Limits{})
		remote := startServer(t, lookup.ServiceConfig{Pool: pool, Backend: &lookuptest.KeyStore{}, Remote: patient}, Limits{})
		peers := []*lookuptest.Peer{lookuptest.DialPeer(t, memory.Addrs()[0]), lookuptest.DialPeer(t, remote.Addrs()[0])}
		hash, n := c.Pool().HashBlockSize, 1+r.IntN(3000)
		hashes := lookuptest.Chain(fmt.Sprint("cuts", seed), n, 32)
		for stored := 0; stored < n; {
			next := min(n, stored+1+r.IntN(1500))
			p := api.PromptStore{NumTokens: int64(next * hash), StartToken: int64(stored * hash), FirstHash: r.IntN(stored + 1)}
			for g := range c.NumGroups() {
				if c.StoresStates(g) {
					p.States = append(p.States, api.State{Group: g, Tokens: int64((p.FirstHash + 1 + r.IntN(next-p.FirstHash)) * hash)})
				}
			}
			blob := hashes[p.FirstHash*32 : next*32]
			want, err := reference.StorePrompt(t.Context(), p, coordinator.NewHashes(blob, 32))
			for _, peer := range peers {
				sendInCuts(t, r, peer, promptRequest(t, p, blob, 32))
				reply := peer.Next(t)
				if err != nil {
					require.Equal(t, [][]byte{{0}, []byte(err.Error())}, reply[:2])
					continue
				}
				var payload []byte
				for _, n := range want {
					payload = binary.BigEndian.AppendUint32(payload, uint32(n))
				}
				require.Equal(t, [][]byte{{1}, payload}, reply, "seed %d: %+v", seed, p)
			}
			if stored = next; err != nil {
				break
			}
		}
		for range 5 {
			tokens := int64(r.IntN(n*hash+1)) / c.Alignment() * c.Alignment()
			view := coordinator.NewHashes(hashes, 32)
			want, wantErr := reference.Lookup(t.Context(), tokens, view)
			for _, server := range []*Server{memory, remote} {
				got, err := dialTest(t, server).Lookup(t.Context(), tokens, view)
				if wantErr != nil {
					continue // pools whose lookups fail
				}
				require.NoError(t, err)
				require.Equal(t, want.Tokens, got.Tokens, "seed %d: %d tokens", seed, tokens)
			}
			found += int(min(want.Tokens, 1))
		}
	}
	require.Greater(t, found, pools)
}

// sendInCuts writes a message in random pieces.
func sendInCuts(t *testing.T, r *rand.Rand, p *lookuptest.Peer, message []byte) {
	t.Helper()
	most := []int{3, 100, 5000, 100000}[r.IntN(4)]
	if len(message) > 1000*most {
		most = len(message)
	}
	for len(message) > 0 {
		n := min(1+r.IntN(most), len(message))
		_, err := p.Write(message[:n])
		require.NoError(t, err)
		message = message[n:]
	}
}

// promptPool has groups of unequal blocks on four ranks.
var promptPool = coordinator.Pool{HashBlockSize: 16, SchedulerBlockSize: 256, TPSize: 4, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.FullAttention, BlockSize: 64},
	{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
}}

// TestStorePromptExample stores a prompt in two requests, byte by byte.
func TestStorePromptExample(t *testing.T) {
	pool := coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, TPSize: 2, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.Mamba, BlockSize: 32},
	}}
	p := lookuptest.DialPeer(t, startServer(t, lookup.ServiceConfig{Pool: pool}, Limits{}).Addrs()[0])
	const tag = "010c73746f72655f70726f6d7074"
	for _, exchange := range [][2]string{
		{
			tag + "0110 00000040 00000000 ffffffff 00000000 0100 0108 00000001 00000040" +
				"0102 0004 0010 a0a1a200 a0a1a201 a0a1a202 a0a1a203",
			"010101 0008 00000004 00000001",
		},
		{
			tag + "0110 00000060 00000040 00000064 00000003 0106 0001 0000 0000 0108 00000001 00000000" +
				"0102 0004 000c a0a1a203 a0a1a204 a0a1a205",
			"010101 0008 00000002 00000000",
		},
	} {
		request, err := hex.DecodeString(strings.ReplaceAll(exchange[0], " ", ""))
		require.NoError(t, err)
		reply, err := hex.DecodeString(strings.ReplaceAll(exchange[1], " ", ""))
		require.NoError(t, err)
		p.Send(t, request)
		p.Reads(t, reply)
	}
}

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

// TestStorePromptIsRefusedBeforeItStores sends hostile prompts in a row: each gets its sentence,
// nothing is stored, and the connection goes on.
func TestStorePromptIsRefusedBeforeItStores(t *testing.T) {
	for _, backend := range []bool{false, true} {
		cfg := lookup.ServiceConfig{Pool: promptPool}
		store := &lookuptest.KeyStore{}
		if backend {
			cfg.Backend, cfg.Remote = store, patient
		}
		server := startServer(t, cfg, Limits{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		hashes := lookuptest.Chain("hostile", 64, 32)
		ranks := make([]coordinator.GroupRank, netproto.MaxRanks)
		states := make([]api.State, netproto.MaxStates)
		for i := range states {
			states[i] = api.State{Group: i, Tokens: math.MaxUint32}
		}
		last := min(math.MaxUint32, math.MaxInt)
		for text, prompt := range map[string]api.PromptStore{
			"chunk 64, whose hash 64":                                {NumTokens: math.MaxUint32},
			fmt.Sprintf("the hashes %d to %d", last, int64(last)+63): {NumTokens: 1024, FirstHash: last},
			"group 0, which is no mamba group":                       {NumTokens: 1024, States: states},
			"tp_rank 4":                                              {NumTokens: 1024, Ranks: append(ranks[1:], coordinator.GroupRank{TPRank: 4})},
			"chunk 48, whose hash 48 is missing: ":                   {NumTokens: 1024, StartToken: 1008, FirstHash: 64},
		} {
			_, err := p.Write(promptRequest(t, prompt, hashes, 32))
			require.NoError(t, err)
			reply := p.Next(t)
			require.Equal(t, &api.Refusal{Refusal: api.RefusalBadRequest, Request: "store_prompt"}, refusalIn(reply), "%q", reply)
			require.Contains(t, string(reply[1]), text)
		}
		_, err := p.Write(promptRequest(t, api.PromptStore{NumTokens: 1024, StartToken: math.MaxUint32, Ranks: ranks}, hashes, 32))
		require.NoError(t, err)
		require.Equal(t, [][]byte{{1}, make([]byte, 12)}, p.Next(t), "a start behind the end: there is nothing to store")
		require.Empty(t, store.Keys)
		require.Zero(t, statOf(t, dialTest(t, server)).Entries)
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
