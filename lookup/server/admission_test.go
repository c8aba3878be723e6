package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
)

// TestAdmissionOfSizes fills what large jobs may have: small ones have the rest.
func TestAdmissionOfSizes(t *testing.T) {
	a := newAdmission(lookup.NewMemoryAccount(2000), nil)
	require.EqualValues(t, 1000, a.max)
	require.True(t, a.admit(400, false, 0))
	require.True(t, a.admit(350, false, 0), "three quarters")
	require.False(t, a.admit(1, false, 0))
	require.True(t, a.admit(250, true, 0), "the last quarter")
	require.False(t, a.admit(1, true, 0))

	a.free(250, true)
	require.False(t, a.admit(250, false, 0), "it is for small ones")
	a.free(350, false)
	require.True(t, a.admit(350, false, 0))
	a.free(350, false)
	a.free(400, false)
	require.Zero(t, a.all.Load()+a.large.Load())
}

// TestAdmissionOfAConnection has connections take as much as they can: each leaves for others as much as
// it has.
func TestAdmissionOfAConnection(t *testing.T) {
	a := newAdmission(lookup.NewMemoryAccount(2*900), nil)
	for i, want := range []int64{450, 220, 110} {
		held := int64(0)
		for a.admit(10, true, held) {
			held += 10
		}
		require.Equal(t, want, held, "connection %d", i)
	}
	require.True(t, a.admit(120, true, 0), "one request of a connection needs only room")
}

// TestAdmissionTellsWhatIsTooLarge announces more hashes than a job will ever be given.
func TestAdmissionTellsWhatIsTooLarge(t *testing.T) {
	a := newAdmission(lookup.NewMemoryAccount(1<<20), nil)
	require.NoError(t, a.check(3<<17))
	var limit *limitError
	require.ErrorAs(t, a.check(3<<17+1), &limit)
	require.EqualValues(t, 3<<17, limit.limit)
	require.Contains(t, limit.Error(), "limits.max_memory")

	small := newAdmission(lookup.NewMemoryAccount(1000), nil)
	require.NoError(t, small.check(smallBytes), "small ones may be served later")
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
			return server.admission.all.Load() == int64((admitted+1)*len(keys)) || server.Stat().Busy > 0
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
	require.Zero(t, server.admission.all.Load())
	require.Zero(t, server.admission.large.Load())
}
