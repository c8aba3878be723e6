package server

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// requests, each with an envelope of its own or none.
func lookupOf(id string, keys []byte) []byte {
	return append(netproto.AppendLookup(nil, idEnvelope(id), uint32(len(keys)/2), 32, len(keys)), keys...)
}

func storeOf(id string, tag netproto.Tag, keys []byte) []byte {
	return append(netproto.AppendKeys(nil, idEnvelope(id), tag, netproto.WireRank{}, 32, len(keys)), keys...)
}

func plainOf(id string, tag netproto.Tag, frames ...[]byte) []byte {
	return netproto.AppendRequest(nil, idEnvelope(id), tag, frames...)
}

func idEnvelope(id string) []byte {
	switch id {
	case "":
		return nil
	case "bare":
		return []byte(bareDelimiter)
	}
	return encodeEnvelope("\x00" + id)
}

func hitText(hashes int) string { return fmt.Sprintf("%08x", 16*hashes) }

func TestRemoteOvertaking(t *testing.T) {
	slow, fast := lookuptest.Chain("slow", 8, 32), lookuptest.Chain("fast", 4, 32)
	store, g := lookuptest.Filled(t, slow, fast), lookuptest.NewGate()
	store.Holding(g, "exists", fmt.Sprintf("%x", slow[:32]))
	p := lookuptest.DialPeer(t, startRemote(t, store, patient, Limits{}).Addrs()[0])
	p.Send(t, lookupOf("a", slow), lookupOf("b", fast), plainOf("c", netproto.TagPing), lookupOf("d", nil))
	got := map[string]string{}
	for range 3 {
		id, body, _ := p.Reply(t)
		got[id] = body
	}
	require.Equal(t, map[string]string{"b": hitText(4), "c": "01", "d": hitText(0)}, got)
	close(g.Open)
	p.Expect(t, "a "+hitText(8))
}

func TestRemoteEqualEnvelopes(t *testing.T) {
	for _, id := range []string{"", "same"} {
		slow, fast := lookuptest.Chain("slow", 8, 32), lookuptest.Chain("fast", 4, 32)
		store, g := lookuptest.Filled(t, slow, fast), lookuptest.NewGate()
		store.Holding(g, "exists", fmt.Sprintf("%x", slow[:32]))
		server := startRemote(t, store, patient, Limits{})
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		other := id
		if id == "" {
			other = "bare" // none and the bare delimiter count as equal
		}
		p.Send(t, lookupOf(id, slow), lookupOf(other, fast), plainOf(id, netproto.TagPing, []byte("echo")),
			plainOf(id, netproto.TagUnknown), plainOf(other, netproto.TagStat), lookupOf(id, fast), plainOf("end", netproto.TagPing))
		p.Expect(t, "end 01")
		lookuptest.Eventually(t, "the fast lookups have been asked", func() bool { return server.Stat().Lookups == 2 })
		close(g.Open)
		var got []string
		for range 6 {
			_, body, _ := p.Reply(t)
			got = append(got, body)
		}
		require.Equal(t, []string{hitText(8), hitText(4), "01", "00", "01", hitText(4)}, got)
		lookuptest.Eventually(t, "nothing is left", func() bool { return server.inFlight.Load() == 0 })
	}
}

// TestRemoteLookupWaitsForReset sends a lookup behind a reset that takes long. Its time begins when it
// begins.
func TestRemoteLookupWaitsForReset(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, gate := lookuptest.Filled(t, keys), lookuptest.NewGate()
	var deadline atomic.Pointer[time.Time] // of the lookup
	store.Before = func(ctx context.Context, op string, _ []string) error {
		switch op {
		case "reset":
			return gate.Wait(ctx)
		case "exists":
			at, _ := ctx.Deadline()
			deadline.Store(&at)
		}
		return nil
	}
	server := startRemote(t, store, patient, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, plainOf("reset", netproto.TagReset), lookupOf("after", keys), plainOf("stat", netproto.TagStat), plainOf("ping", netproto.TagPing))
	lookuptest.Eventually(t, "the reset has begun", func() bool { return gate.Held.Load() == 1 && server.numKeeping() == 1 })
	require.EqualValues(t, 2, store.Calls.Load(), "the first store and the reset")
	ended := time.Now()
	close(gate.Open)
	p.Expect(t, "reset 01")
	got := map[string]string{}
	for range 3 {
		id, body, _ := p.Reply(t)
		got[id] = body
	}
	require.Equal(t, map[string]string{"after": hitText(0), "stat": "01", "ping": "01"}, got)
	require.False(t, deadline.Load().Before(ended.Add(patient.Timeout)))
}

// TestRemoteAgreesWithSequence sends random requests without waiting, over a store
// that is randomly slow, and compares with a memory service asked one by one.
func TestRemoteAgreesWithSequence(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		store := &lookuptest.KeyStore{}
		store.Before = func(context.Context, string, []string) error {
			if d := time.Duration(rand.IntN(400)) * time.Microsecond; d > 200*time.Microsecond {
				<-time.After(d)
			}
			return nil
		}
		model, err := lookup.NewService(blocks16)
		require.NoError(t, err)
		p := lookuptest.DialPeer(t, startRemote(t, store, patient, Limits{}).Addrs()[0])
		chains := [][]byte{lookuptest.Chain("a", 20, 32), lookuptest.Chain("b", 20, 32)}
		want := map[string][]string{}
		var all []byte
		const requests = 300
		for i := range requests {
			id := fmt.Sprint(i)
			if rng.IntN(3) == 0 {
				id = fmt.Sprintf("shared%d", rng.IntN(3))
			}
			keys := chains[rng.IntN(2)]
			from := 32 * rng.IntN(20)
			to := from + 32*(1+rng.IntN((len(keys)-from)/32))
			body := "01"
			switch rng.IntN(10) {
			case 0:
				all = append(all, plainOf(id, netproto.TagReset)...)
				require.NoError(t, model.Reset(t.Context()))
			case 1, 2, 3:
				all = append(all, storeOf(id, netproto.TagStore, keys[:to])...)
				require.NoError(t, model.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[:to], 32)))
			case 4:
				all = append(all, storeOf(id, netproto.TagEvict, keys[from:to])...)
				require.NoError(t, model.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[from:to], 32)))
			case 5:
				all = append(all, plainOf(id, netproto.TagPing)...)
			default:
				all = append(all, lookupOf(id, keys)...)
				hit, err := model.Lookup(t.Context(), int64(len(keys)/2), coordinator.NewHashes(keys, 32))
				require.NoError(t, err)
				body = fmt.Sprintf("%08x", hit.Tokens)
			}
			want[id] = append(want[id], body)
		}
		go func() {
			for len(all) > 0 {
				n := min(len(all), 1+rng.IntN(5000))
				_, _ = p.Write(all[:n])
				all = all[n:]
			}
		}()
		got := map[string][]string{}
		for range requests {
			id, body, _ := p.Reply(t)
			got[id] = append(got[id], body)
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestRemoteTimeout(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate() // never opened
	store.Holding(g, "", "")
	const timeout = 50 * time.Millisecond
	server := startRemote(t, store, lookup.RemoteConfig{Timeout: timeout, WriteTimeout: timeout}, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	begun := time.Now()
	p.Send(t, lookupOf("", keys))
	p.Expect(t, hitText(0))
	require.GreaterOrEqual(t, time.Since(begun), timeout)
	require.Less(t, time.Since(begun), lookuptest.Patience/2)
	p.Send(t, append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, 128, 0, 32, len(keys)), keys...))
	_, body, text := p.Reply(t)
	require.Equal(t, "00", body, "an explanation of nothing would mislead")
	require.Contains(t, text, "; backend.keys.timeout is 50ms")
	p.Send(t, plainOf("", netproto.TagReset))
	_, body, text = p.Reply(t)
	require.Equal(t, "00", body)
	require.Contains(t, text, "reset: ")
	st := server.Stat()
	require.EqualValues(t, 3, st.BackendTimeouts)
	require.Zero(t, st.BackendErrors)
}

// A request's time begins when it arrives, not when a worker takes it.
func TestRemoteTimeInQueue(t *testing.T) {
	first, keys := lookuptest.Chain("first", 8, 32), lookuptest.Chain("a", 8, 32)
	for name, request := range map[string][]byte{
		"lookup":  lookupOf("", keys),
		"plan":    planOf("", keys),
		"explain": append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, 128, 0, 32, len(keys)), keys...),
	} {
		t.Run(name, func(t *testing.T) {
			store, gate := lookuptest.Filled(t, first, keys), lookuptest.NewGate()
			deadlines := make(chan time.Time, 2)
			store.Before = func(ctx context.Context, op string, _ []string) error {
				at, _ := ctx.Deadline()
				deadlines <- at
				return gate.Wait(ctx)
			}
			cfg := patient
			cfg.Workers = 1
			server := startRemote(t, store, cfg, Limits{})
			p, other := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
			p.Send(t, lookupOf("", first))
			<-deadlines
			other.Send(t, request, plainOf("ping", netproto.TagPing))
			other.Expect(t, "ping 01")
			arrived := time.Now()
			close(gate.Open)
			require.False(t, (<-deadlines).After(arrived.Add(cfg.Timeout)))
		})
	}
}

// TestRemoteMaxBytes fills RemoteConfig.MaxBytes with a request that waits for the store, and one that has not
// arrived whole.
func TestRemoteMaxBytes(t *testing.T) {
	here, others := oneBlock("here"), lookuptest.Chain("a", 400, 32)
	store, gate := holdOthers(t, here)
	cfg := patient
	cfg.MaxBytes = 60_000
	server := startRemote(t, store, cfg, Limits{MaxMemory: 560_000})
	half, waits, p := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	msg := lookupOf("", others)
	half.Send(t, msg[:len(msg)-3])
	lookuptest.Eventually(t, "half is there", func() bool { return server.heldBytes() > 12_000 })
	waits.Send(t, msg)
	lookuptest.Eventually(t, "it waits for the store", func() bool { return gate.Held.Load() == 1 && server.heldBytes() > 28_000 })
	p.Send(t, msg, storeOf("", netproto.TagStore, others), lookupOf("", here))
	p.Expect(t, "00", "00", hitText(1))
	require.EqualValues(t, 2, server.Stat().Busy)
	close(gate.Open)
	waits.Expect(t, hitText(0))
	lookuptest.Eventually(t, "half is left", func() bool { return server.heldBytes() < 20_000 })
	half.Send(t, msg[len(msg)-3:])
	half.Expect(t, hitText(0))
	half.Send(t, msg[:len(msg)-3])
	lookuptest.Eventually(t, "again", func() bool { return server.heldBytes() > 12_000 })
	require.NoError(t, half.Close())
	lookuptest.Eventually(t, "a lost connection leaves nothing", func() bool { return server.heldBytes() < 3000 })
}

// leasing states the lease of what it finds.
type leasing struct{ *lookuptest.KeyStore }

func (leasing) Lease() backend.Lease { return backend.Lease{Duration: time.Hour, Stated: time.Hour} }

// A lookup of blocks that were found a moment ago waits for no worker.
func TestRemoteKnownBlocks(t *testing.T) {
	slow, fast := lookuptest.Chain("slow", 8, 32), lookuptest.Chain("fast", 4, 32)
	store, g := lookuptest.Filled(t, slow, fast), lookuptest.NewGate()
	store.Holding(g, "exists", fmt.Sprintf("%x", slow[:32]))
	cfg := patient
	cfg.Workers = 1
	p := lookuptest.DialPeer(t, startRemote(t, leasing{store}, cfg, Limits{}).Addrs()[0])
	p.Send(t, lookupOf("found", fast))
	p.Expect(t, "found "+hitText(4))
	p.Send(t, lookupOf("slow", slow), lookupOf("known", fast))
	p.Expect(t, "known "+hitText(4))
	close(g.Open)
	p.Expect(t, "slow "+hitText(8))
}

// A packet of lookups from far on, which are tried on the event loop, costs what its hashes cost.
func TestRemoteFarStarts(t *testing.T) {
	const start, requests = 16 * 1_999_000, 8
	pool := coordinator.Pool{VLLM: "0.28.0", ModelName: "m", HashBlockSize: 16, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}}
	for variant := range 9 {
		pool.Groups = append(pool.Groups, coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 1024, Variant: variant})
	}
	server := startServer(t, lookup.ServiceConfig{Pool: pool, Backend: leasing{&lookuptest.KeyStore{}}, Remote: patient}, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	request := lookuptest.Encode([]byte("lookup_from"), u32s(start+17, start), []byte{0, 32}, lookuptest.Chain("a", 1, 32))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.Send(t, bytes.Repeat(request, requests))
	for range requests {
		require.Equal(t, [][]byte{u32s(start)}, p.Next(t))
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestRemoteMaxInFlight(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{MaxInFlight: 2})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("1", keys), lookupOf("same", keys))
	for i := range 3 {
		p.Send(t, lookupOf(fmt.Sprint("more", i), keys))
		id, body, text := p.Reply(t)
		require.Equal(t, fmt.Sprint("more", i, " 00"), id+" "+body)
		require.Contains(t, text, "2 requests of this connection have no reply yet")
	}
	p.Send(t, plainOf("same", netproto.TagPing), plainOf("same", netproto.TagUnknown))
	lookuptest.Eventually(t, "refusals that wait for a reply count, too", func() bool { return server.Stat().InFlight == 4 })
	close(g.Open)
	got := map[string]int{}
	for range 4 {
		id, body, _ := p.Reply(t)
		got[id+" "+body]++
	}
	require.Equal(t, map[string]int{"1 " + hitText(8): 1, "same " + hitText(8): 1, "same 00": 2}, got)
	require.EqualValues(t, 4, server.Stat().Busy)
	require.EqualValues(t, 5, server.Stat().RequestsRefused)
	p.Send(t, lookupOf("1", keys))
	p.Expect(t, "1 "+hitText(8))
}

// TestRemoteFloodInFlight has a peer send more than twice what it may have in flight.
func TestRemoteFloodInFlight(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, gate := lookuptest.Filled(t, keys), lookuptest.NewGate() // never opened
	store.Holding(gate, "exists", "")
	server := startRemote(t, store, patient, Limits{MaxInFlight: 2})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("", keys), bytes.Repeat(plainOf("", netproto.TagPing), 3))
	lookuptest.Eventually(t, "it waits", func() bool { return server.Stat().InFlight == 4 })
	p.Send(t, plainOf("", netproto.TagPing))
	p.ClosedWithin(t)
	lookuptest.Eventually(t, "it is counted", func() bool { return server.peers.closed[closedInFlight].Load() == 1 })
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.Stat().InFlight == 0 && server.heldBytes() == 0 })
}

// TestRemoteHeldReplies sends large pings behind a slow lookup.
func TestRemoteHeldReplies(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{MaxUnsent: 100 << 10})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	ping := plainOf("", netproto.TagPing, make([]byte, 60<<10))
	p.Send(t, lookupOf("", keys), ping, ping, ping, ping, plainOf("end", netproto.TagPing))
	p.Expect(t, "end 00")
	close(g.Open)
	p.Expect(t, hitText(8), "01", "01", "00", "00")
	p.Send(t, ping)
	p.Expect(t, "01")
}

func TestRemoteConnectionLost(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Before = func(ctx context.Context, _ string, _ []string) error { return g.Wait(ctx) }
	cfg := patient
	cfg.Workers = 1
	server := startRemote(t, store, cfg, Limits{})
	calls := store.Calls.Load()
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("1", keys), lookupOf("2", keys), storeOf("3", netproto.TagStore, keys), lookupOf("4", keys), lookupOf("5", keys)[:200])
	lookuptest.Eventually(t, "all is there", func() bool {
		return g.Held.Load() == 1 && server.heldBytes() > 3*256 && server.numKeeping() == 1 && server.Stat().InFlight == 3
	})
	reset(t, p)
	lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 })
	lookuptest.Eventually(t, "nothing is in flight", func() bool { return server.Stat().InFlight == 0 })
	close(g.Open)
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
	require.EqualValues(t, 1, store.Calls.Load()-calls, "what had not begun is not asked")
	p = lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("1", keys))
	p.Expect(t, "1 "+hitText(8))
}

func TestRemoteDrain(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("a", keys), plainOf("b", netproto.TagReset))
	lookuptest.Eventually(t, "it is asked", func() bool { return g.Held.Load() == 1 })
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "draining", server.isShuttingDown)
	select {
	case err := <-down:
		t.Fatalf("shut down with requests in flight: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(g.Open)
	p.Expect(t, "a "+hitText(8), "b 01")
	require.NoError(t, <-down)
	p.ClosedWithin(t)
	require.NoError(t, server.Err())
}

// TestDrainWaitsForUnsentReplies has a peer that reads late.
func TestDrainWaitsForUnsentReplies(t *testing.T) {
	for name, cfg := range map[string]lookup.ServiceConfig{"memory": blocks16, "remote": {Pool: blocks16.Pool, Backend: &lookuptest.KeyStore{}}} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, cfg, Limits{MaxUnsent: 256 << 20, MaxMemory: 512 << 20})
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			const pings = 400 // 25 MiB, more than the kernel takes
			ping := plainOf("", netproto.TagPing, make([]byte, 64000))
			p.Send(t, bytes.Repeat(ping, pings))
			lookuptest.Eventually(t, "replies are unsent", func() bool { return server.conns.countBusy() == 1 })
			down := make(chan error, 1)
			go func() { down <- server.Shutdown(context.Background()) }()
			lookuptest.Eventually(t, "draining", server.isShuttingDown)
			for range pings {
				require.Len(t, p.Next(t)[1], 64000)
			}
			require.NoError(t, <-down)
		})
	}
}

// An explanation over the wire is that of the service, and no lookup.
func TestExplainOverTheWire(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, Settings{})
		keys := lookuptest.Chain("a", 8, 32)
		lookuptest.StorePrefix(t, server.pools.own.service, keys, 5)
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		reply := p.Ask(t, []byte("explain"), u32s(128, 0), []byte{0, 32}, keys)
		require.JSONEq(t, `{"start_tokens":0,"hit_tokens":80,"account":{"block":5,"tokens":{"new":48,"pool":80}},"groups":[{"group":0,"kind":"full_attention","end_tokens":80,"reason":"missing_block",
			"first_missing_block":5,"gap_start":5,"gap_end":8}]}`, string(reply[1]))
		e, err := dialTest(t, server).Explain(t.Context(), 128, coordinator.Hashes{})
		require.NoError(t, err)
		require.Equal(t, coordinator.ReasonNothing, e.Groups[0].Reason)
		require.Zero(t, server.Stat().Lookups)
	})
}

// TestRemoteNeedsFewHashes asks for few tokens with many hashes: only those that
// matter are asked.
func TestRemoteNeedsFewHashes(t *testing.T) {
	keys := lookuptest.Chain("a", 10000, 32)
	store := lookuptest.Filled(t, keys[:320])
	asked := atomic.Int64{}
	store.Before = func(_ context.Context, _ string, keys []string) error { asked.Add(int64(len(keys))); return nil }
	server := startRemote(t, store, patient, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, append(netproto.AppendLookup(nil, nil, 160, 32, len(keys)), keys...))
	p.Expect(t, hitText(10))
	require.EqualValues(t, 10, asked.Load())
}
