package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/workers"
	"github.com/hitline/hitline/netproto"
)

// callRecorder records the lookups that call the store, by their first hash, and blocks
// the first one.
type callRecorder struct {
	gate *lookuptest.Gate
	mu   sync.Mutex
	seen []string
}

func (n *callRecorder) before(ctx context.Context, op string, keys []string) error {
	if op != "exists" {
		return nil
	}
	n.mu.Lock()
	n.seen = append(n.seen, keys[0][strings.LastIndexByte(keys[0], '@')+1:][:8])
	n.mu.Unlock()
	return n.gate.Wait(ctx)
}

func (n *callRecorder) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

// oneBlock is a lookup of one hash, which name begins.
func oneBlock(name string) []byte { return fmt.Appendf(nil, "%-32s", name) }

func named(name string) string { return fmt.Sprintf("%x", oneBlock(name))[:8] }

// TestWorkersAreRoundRobin has one connection pipeline many lookups before two others
// send theirs.
func TestWorkersAreRoundRobin(t *testing.T) {
	n := &callRecorder{gate: lookuptest.NewGate()}
	server := startRemote(t, &lookuptest.KeyStore{Before: n.before}, withWorkers(1), Limits{})
	greedy, modest, late := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	const many = 20
	for i := range many {
		greedy.Send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("g%02d.", i))))
	}
	lookuptest.Eventually(t, "all have come", func() bool { return server.Stat().InFlight == many && n.gate.Held.Load() == 1 })
	for i := range 2 {
		modest.Send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("m%02d.", i))))
		lookuptest.Eventually(t, "it has come", func() bool { return server.Stat().InFlight == int64(many+1+i) })
	}
	late.Send(t, lookupOf("", oneBlock("l00.")))
	lookuptest.Eventually(t, "it has come", func() bool { return server.Stat().InFlight == many+3 })
	close(n.gate.Open)
	late.Expect(t, hitText(0))
	modest.Expect(t, "0 "+hitText(0), "1 "+hitText(0))
	for range many {
		_, body, _ := greedy.Reply(t)
		require.Equal(t, hitText(0), body)
	}
	want := []string{"g00.", "m00.", "l00.", "g01.", "m01.", "g02.", "g03."}
	for i, name := range want {
		want[i] = named(name)
	}
	require.Equal(t, want, n.list()[:len(want)])
}

// TestOneConnectionLeavesWorkers has one connection's lookups hang: another one's do not wait.
func TestOneConnectionLeavesWorkers(t *testing.T) {
	keys := oneBlock("here")
	store, n := lookuptest.Filled(t, keys), &callRecorder{gate: lookuptest.NewGate()}
	store.Before = func(ctx context.Context, op string, asked []string) error {
		if strings.HasSuffix(asked[0], fmt.Sprintf("%x", keys)) {
			return nil
		}
		return n.before(ctx, op, asked)
	}
	server := startRemote(t, store, withWorkers(8), Limits{})
	greedy, modest := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	for i := range 30 {
		greedy.Send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("g%02d.", i))))
	}
	lookuptest.Eventually(t, "its share of the workers is busy", func() bool { return server.Stat().InFlight == 30 && n.gate.Held.Load() == 7 })
	for range 5 {
		modest.Send(t, lookupOf("", keys))
		modest.Expect(t, hitText(1))
	}
	require.EqualValues(t, 7, n.gate.Held.Load())
	close(n.gate.Open)
	for range 30 {
		greedy.Reply(t)
	}
}

// withWorkers is a configuration with so many workers that read.
func withWorkers(n int) lookup.RemoteConfig {
	cfg := patient
	cfg.Workers = n
	return cfg
}

// manyBlocks is a lookup that is large.
func manyBlocks(name string) []byte {
	return append(oneBlock(name), lookuptest.Chain(name, admission.SmallBytes/32, 32)...)
}

// holdOthers returns a store with keys, whose calls for others wait at the gate.
func holdOthers(t *testing.T, keys []byte) (*lookuptest.KeyStore, *lookuptest.Gate) {
	store, gate := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Before = func(ctx context.Context, _ string, asked []string) error {
		if strings.HasSuffix(asked[0], fmt.Sprintf("%x", keys)) {
			return nil
		}
		return gate.Wait(ctx)
	}
	return store, gate
}

// TestLargeRequestsLeaveWorkers has large lookups of many connections hang: they leave an
// eighth of the workers, at least one, to small lookups of all connections.
func TestLargeRequestsLeaveWorkers(t *testing.T) {
	for workers, want := range map[int]int64{2: 1, 4: 3, 8: 7, 32: 28} {
		keys := oneBlock("here")
		store, gate := holdOthers(t, keys)
		server := startRemote(t, store, withWorkers(workers), Limits{})
		var peers []*lookuptest.Peer
		const each = 8
		for i := range int64(8) {
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			for k := range int64(each) {
				p.Send(t, lookupOf(fmt.Sprint(k), manyBlocks(fmt.Sprintf("g%d.%d.", i, k))))
			}
			lookuptest.Eventually(t, "all have come", func() bool { return server.Stat().InFlight == each*(i+1) })
			peers = append(peers, p)
		}
		lookuptest.Eventually(t, "some run", func() bool { return gate.Held.Load() == want })
		for range 3 {
			for _, p := range append(peers, lookuptest.DialPeer(t, server.Addrs()[0])) {
				p.Send(t, lookupOf("small", keys))
				p.Expect(t, "small "+hitText(1))
			}
		}
		require.Equal(t, want, gate.Held.Load(), "%d workers", workers)
		close(gate.Open)
		for _, p := range peers {
			for range each {
				p.Reply(t)
			}
		}
		require.Zero(t, server.Stat().InFlight)
	}
}

// TestOneConnectionOfLargeRequests has a connection send large lookups that hang: it keeps
// fewer workers busy than small ones may, so that its own small lookups are answered.
func TestOneConnectionOfLargeRequests(t *testing.T) {
	keys := oneBlock("here")
	store, gate := holdOthers(t, keys)
	server := startRemote(t, store, withWorkers(32), Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	const sent = 40
	for i := range sent {
		p.Send(t, lookupOf(fmt.Sprint(i), manyBlocks(fmt.Sprintf("g%d.", i))))
	}
	lookuptest.Eventually(t, "some run", func() bool { return server.Stat().InFlight == sent && gate.Held.Load() == 24 })
	p.Send(t, lookupOf("small", keys))
	p.Expect(t, "small "+hitText(1))
	require.EqualValues(t, 24, gate.Held.Load())
	close(gate.Open)
	for range sent {
		p.Reply(t)
	}
}

// A hash is a key of each group, on each rank.
func TestKeysAreWork(t *testing.T) {
	pool := coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{{BlockSize: 16}, {BlockSize: 32}}, TPSize: 3}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	require.NoError(t, err)
	const keys = 3 + 1 // of a hash
	for bytes, want := range map[int]workers.Size{admission.SmallBytes / keys: workers.Small, admission.SmallBytes/keys + 1: workers.Large} {
		require.Equal(t, want, (&job{pool: newPool("", service), service: service, neededBytes: bytes}).Size(), bytes)
	}
}

// TestSizesTakeTurns has one worker serve small and large lookups that wait.
func TestSizesTakeTurns(t *testing.T) {
	n := &callRecorder{gate: lookuptest.NewGate()}
	server := startRemote(t, &lookuptest.KeyStore{Before: n.before}, withWorkers(1), Limits{})
	var peers []*lookuptest.Peer
	for i, keys := range [][]byte{oneBlock("b"), manyBlocks("l1."), manyBlocks("l2."), oneBlock("s1."), oneBlock("s2."), oneBlock("s3.")} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, lookupOf("", keys))
		lookuptest.Eventually(t, "it has come", func() bool { return server.Stat().InFlight == int64(i)+1 && n.gate.Held.Load() == 1 })
		peers = append(peers, p)
	}
	close(n.gate.Open)
	for _, p := range peers {
		p.Reply(t)
	}
	want := []string{named("b"), named("l1."), named("s1."), named("l2."), named("s2."), named("s3.")}
	require.Equal(t, want, n.list())
}

// TestResetsLeaveWorkers has resets of many connections hang: a store of few hashes has a
// worker.
func TestResetsLeaveWorkers(t *testing.T) {
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "reset", "")
	cfg := withWorkers(8)
	cfg.WriteWorkers = 4
	server := startRemote(t, store, cfg, Limits{})
	var peers []*lookuptest.Peer
	for range 6 {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, plainOf("", netproto.TagReset))
		peers = append(peers, p)
	}
	lookuptest.Eventually(t, "some run", func() bool { return server.Stat().InFlight == 6 && gate.Held.Load() == 3 })
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, storeOf("", netproto.TagStore, oneBlock("s")))
	p.Expect(t, "01")
	require.EqualValues(t, 3, gate.Held.Load())
	close(gate.Open)
	for _, p := range peers {
		p.Reply(t)
	}
}
