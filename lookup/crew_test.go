package lookup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// turns notes which lookups the store is asked for, by their first hash, and holds
// the first one.
type turns struct {
	gate *gate
	mu   sync.Mutex
	seen []string
}

func (n *turns) before(ctx context.Context, op string, keys []string) error {
	if op != "exists" {
		return nil
	}
	n.mu.Lock()
	n.seen = append(n.seen, keys[0][strings.LastIndexByte(keys[0], '@')+1:][:8])
	n.mu.Unlock()
	return n.gate.wait(ctx)
}

func (n *turns) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

// oneBlock is a lookup of one hash, which name begins.
func oneBlock(name string) []byte { return fmt.Appendf(nil, "%-32s", name) }

func named(name string) string { return fmt.Sprintf("%x", oneBlock(name))[:8] }

// TestCrewTakesTurns has one connection pipeline many lookups before two others
// send theirs.
func TestCrewTakesTurns(t *testing.T) {
	n := &turns{gate: newGate()}
	cfg := patient
	cfg.Workers = 1
	server := startRemote(t, &keyStore{before: n.before}, cfg, Limits{})
	greedy, modest, late := dialPeer(t, server), dialPeer(t, server), dialPeer(t, server)
	const many = 20
	for i := range many {
		greedy.send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("g%02d.", i))))
	}
	eventually(t, "all have come", func() bool { return server.Stat().InFlight == many && n.gate.held.Load() == 1 })
	for i := range 2 {
		modest.send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("m%02d.", i))))
		eventually(t, "it has come", func() bool { return server.Stat().InFlight == int64(many+1+i) })
	}
	late.send(t, lookupOf("", oneBlock("l00.")))
	eventually(t, "it has come", func() bool { return server.Stat().InFlight == many+3 })
	close(n.gate.open)
	late.expect(t, hitText(0))
	modest.expect(t, "0 "+hitText(0), "1 "+hitText(0))
	for range many {
		_, body, _ := greedy.reply(t)
		require.Equal(t, hitText(0), body)
	}
	want := []string{"g00.", "m00.", "l00.", "g01.", "m01.", "g02.", "g03."}
	for i, name := range want {
		want[i] = named(name)
	}
	require.Equal(t, want, n.list()[:len(want)])
}

// TestCrewKeepsWorkers has one connection's lookups hang: another one's do not wait.
func TestCrewKeepsWorkers(t *testing.T) {
	keys := oneBlock("here")
	store, n := filled(t, keys), &turns{gate: newGate()}
	store.before = func(ctx context.Context, op string, asked []string) error {
		if strings.HasSuffix(asked[0], fmt.Sprintf("%x", keys)) {
			return nil
		}
		return n.before(ctx, op, asked)
	}
	cfg := patient
	cfg.Workers = 8
	server := startRemote(t, store, cfg, Limits{})
	greedy, modest := dialPeer(t, server), dialPeer(t, server)
	for i := range 30 {
		greedy.send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("g%02d.", i))))
	}
	eventually(t, "its share of the workers is busy", func() bool { return server.Stat().InFlight == 30 && n.gate.held.Load() == 7 })
	for range 5 {
		modest.send(t, lookupOf("", keys))
		modest.expect(t, hitText(1))
	}
	require.EqualValues(t, 7, n.gate.held.Load())
	close(n.gate.open)
	for range 30 {
		greedy.reply(t)
	}
}

// TestCrewKeepsRoom has one connection fill as much of the queue as it may.
func TestCrewKeepsRoom(t *testing.T) {
	n := &turns{gate: newGate()}
	cfg := patient
	cfg.Workers, cfg.Queue = 1, 8
	server := startRemote(t, &keyStore{before: n.before}, cfg, Limits{})
	busy := dialPeer(t, server)
	busy.send(t, lookupOf("", oneBlock("b")))
	eventually(t, "the worker is busy", func() bool { return n.gate.held.Load() == 1 })
	for connection, want := range []int64{4, 2, 1, 1} { // of 8, 4, 2 and 1 that are left
		p, before := dialPeer(t, server), server.Stat()
		const sent = 6
		for i := range sent {
			p.send(t, lookupOf(fmt.Sprint(i), oneBlock(fmt.Sprintf("%d.%d", connection, i))))
		}
		eventually(t, fmt.Sprintf("%d of connection %d wait, and the others are answered", want, connection), func() bool {
			now := server.Stat()
			return now.InFlight-before.InFlight == want && now.BackendRejected-before.BackendRejected == sent-want
		})
	}
	close(n.gate.open)
}
