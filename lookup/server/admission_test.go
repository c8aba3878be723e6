package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/held"
)

// A job that needs more bytes of hashes than it will ever be given is refused, and told how many it may need. Small ones may be
// served later.
func TestCheckNeeded(t *testing.T) {
	s := &shared{admission: held.New(admissionBounds(lookup.NewMemoryAccount(1<<20), nil, 1))}
	require.NoError(t, s.checkNeeded(9<<14))
	var limit *limitError
	require.ErrorAs(t, s.checkNeeded(9<<14+1), &limit)
	require.EqualValues(t, 9<<14, limit.limit)
	require.Contains(t, limit.Error(), "limits.max_memory")
	s.admission = held.New(admissionBounds(lookup.NewMemoryAccount(1000), nil, 1))
	require.NoError(t, s.checkNeeded(admission.SmallBytes))
}

// More lookups than have memory for their keys at a time wait for it, each round anew: none is refused.
func TestRoundsWaitForMemory(t *testing.T) {
	const lookups, blocks, ranks = 40, 1875, 8
	for name, hit := range map[string]int{"all miss": 0, "all hit": blocks} {
		t.Run(name, func(t *testing.T) {
			store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
			store.Before = func(ctx context.Context, _ string, _ []string) error { return gate.Wait(ctx) }
			store.Answer = func(answers []int) []int {
				for i := range answers {
					answers[i] = min(hit, 1)
				}
				return answers
			}
			remote := patient
			remote.Memory = lookup.NewMemoryAccount(128 << 20)
			pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16, TPSize: ranks, NumKVHead: ranks}
			service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: store, Remote: remote})
			require.NoError(t, err)
			server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Memory: remote.Memory})
			require.NoError(t, err)
			startTest(t, server)
			var peers []*lookuptest.Peer
			for i := range lookups {
				p := lookuptest.DialPeer(t, server.Addrs()[0])
				p.Send(t, lookupOf("", lookuptest.Chain(fmt.Sprint(i), blocks, 32)))
				peers = append(peers, p)
			}
			lookuptest.Eventually(t, "all have come", func() bool { return server.Stat().InFlight == lookups })
			close(gate.Open)
			for _, p := range peers {
				p.Expect(t, hitText(hit))
			}
			require.Zero(t, service.Stat().BackendRejected+service.Stat().BackendTimeouts+server.Stat().RequestsRefused)
		})
	}
}
