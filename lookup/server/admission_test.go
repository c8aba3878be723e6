package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
)

// A job that needs more bytes of hashes than it will ever be given is refused, and told how many it may need. Small ones may be
// served later.
func TestCheckNeeded(t *testing.T) {
	s := &Server{admission: newAdmission(lookup.NewMemoryAccount(1<<20), nil)}
	require.NoError(t, s.checkNeeded(3<<17))
	var limit *limitError
	require.ErrorAs(t, s.checkNeeded(3<<17+1), &limit)
	require.EqualValues(t, 3<<17, limit.limit)
	require.Contains(t, limit.Error(), "limits.max_memory")
	s.admission = newAdmission(lookup.NewMemoryAccount(1000), nil)
	require.NoError(t, s.checkNeeded(admission.SmallBytes))
}

// TestOneConnectionLeavesMemory has a connection send lookups over a store that hangs until it is refused:
// another one's are served.
func TestOneConnectionLeavesMemory(t *testing.T) {
	here := oneBlock("here")
	store, gate := holdOthers(t, here)
	cfg := withWorkers(8)
	cfg.MaxBytes = 4000
	server := startRemote(t, store, cfg, Limits{})
	greedy, modest := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	keys, admitted := lookuptest.Chain("a", 30, 32), 0
	for range 10 { // of 960 bytes
		greedy.Send(t, lookupOf(fmt.Sprint(admitted), keys))
		lookuptest.Eventually(t, "it waits or is refused", func() bool {
			return server.admission.Held() == int64((admitted+1)*len(keys)) || server.Stat().Busy > 0
		})
		if server.Stat().Busy > 0 {
			break
		}
		admitted++
	}
	require.Equal(t, 2, admitted, "half of it")
	greedy.Expect(t, fmt.Sprint(admitted, " 00"))
	modest.Send(t, lookupOf("", here))
	modest.Expect(t, hitText(1))
	close(gate.Open)
	for range admitted {
		_, body, _ := greedy.Reply(t)
		require.Equal(t, hitText(0), body)
	}
	require.Zero(t, server.admission.Held())
}
