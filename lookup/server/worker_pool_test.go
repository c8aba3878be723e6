package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/internal/lookuptest"
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
	cfg := patient
	cfg.Workers = 1
	server := startRemote(t, &lookuptest.KeyStore{Before: n.before}, cfg, Limits{})
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
	cfg := patient
	cfg.Workers = 8
	server := startRemote(t, store, cfg, Limits{})
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

// TestOneConnectionLeavesQueue has one connection fill as much of the queue as it may.
func TestOneConnectionLeavesQueue(t *testing.T) {
	n := &callRecorder{gate: lookuptest.NewGate()}
	cfg := patient
	cfg.Workers, cfg.Queue = 1, 8
	server := startRemote(t, &lookuptest.KeyStore{Before: n.before}, cfg, Limits{})
	busy := lookuptest.DialPeer(t, server.Addrs()[0])
	busy.Send(t, lookupOf("", oneBlock("b")))
	lookuptest.Eventually(t, "the worker is busy", func() bool { return n.gate.Held.Load() == 1 })
	for connection, want := range []int64{4, 2, 1, 1} { // of 8, 4, 2 and 1 that are left
		p, before := lookuptest.DialPeer(t, server.Addrs()[0]), server.Stat()
		const sent = 6
		for i := range sent {
			p.Send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("%d.%d", connection, i))))
		}
		lookuptest.Eventually(t, fmt.Sprintf("%d of connection %d wait, and the others are answered", want, connection), func() bool {
			now := server.Stat()
			return now.InFlight-before.InFlight == want && now.BackendRejected-before.BackendRejected == sent-want
		})
	}
	close(n.gate.Open)
}
