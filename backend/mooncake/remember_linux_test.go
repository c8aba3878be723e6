package mooncake

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
)

// TestMasterRemembered looks up what a real master leases. Its lease is learnt; for half of it answers come from
// memory, during which nobody can remove the blocks but by force, and never after it.
func TestMasterRemembered(t *testing.T) {
	w := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	rpc := ""
	var c *Client
	var s *lookup.Service
	for _, lease := range []time.Duration{2 * time.Second, 600 * time.Millisecond} {
		m := storetest.StartMaster(t, w, rpc, fmt.Sprintf("--default_kv_lease_ttl=%d", lease.Milliseconds()))
		n := storetest.StartNode(t, w, m)
		p := newPrompt(t, "remembered")
		n.Put(p.keys...)
		if rpc == "" { // the second master takes the first one's place
			rpc = m.RPC
			c = newClient(t, Config{Masters: []string{rpc}, AllowReset: true})
			var err error
			s, err = lookup.NewService(lookup.ServiceConfig{Pool: p.pool, Backend: c, Remote: lookup.RemoteConfig{Timeout: testTimeout, BreakerPause: time.Millisecond}})
			require.NoError(t, err)
		}
		hashes := coordinator.NewHashes(p.blob[:32*len(p.keys)], 32)
		// remembered makes a lookup, and reports whether it hits without a call. began is before it.
		remembered := func() (hits, fromMemory bool, began time.Time) {
			began = time.Now()
			before := s.Stat().RememberedLookups
			hit, err := s.Lookup(context.Background(), int64(p.wantHit), hashes)
			require.NoError(t, err)
			return hit.Tokens == int64(p.wantHit), s.Stat().RememberedLookups > before, began
		}
		eventually(t, "the lease is learnt", func() bool { remembered(); return c.Lease().Stated == lease })

		called := func() (began, ended time.Time) { // a lookup that calls the master
			eventually(t, "the master is asked", func() (ok bool) {
				var hits, fromMemory bool
				hits, fromMemory, began = remembered()
				ended = time.Now()
				return hits && !fromMemory
			})
			return began, ended
		}
		eventually(t, "an answer comes from memory", func() bool {
			called()
			_, fromMemory, _ := remembered()
			return fromMemory
		})
		began, ended := called()
		for {
			hits, fromMemory, at := remembered()
			require.True(t, hits)
			if !fromMemory {
				break
			}
			require.Less(t, at.Sub(ended), lease/2, "never after the window")
			const objectHasLease = -706
			if result := n.Remove(p.keys[0]); result != objectHasLease {
				require.GreaterOrEqual(t, time.Since(began), lease, "removed")
				n.Put(p.keys[0])
				break
			}
		}

		_, ended = called()
		other := newClient(t, Config{Masters: []string{rpc}, AllowReset: true})
		require.NoError(t, other.Reset(contextWithin(t, testTimeout)))
		for hits := true; hits; {
			var at time.Time
			hits, _, at = remembered()
			require.True(t, !hits || at.Sub(ended) < lease/2, "what others have removed by force hits no longer than for the window")
		}

		n.Put(p.keys...)
		called()
		require.NoError(t, s.Reset(contextWithin(t, testTimeout)))
		hits, _, _ := remembered()
		require.False(t, hits, "after a reset through this client")
		n.Kill()
		m.Kill()
	}
}
