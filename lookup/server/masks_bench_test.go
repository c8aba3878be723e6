package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// BenchmarkPlan runs whole requests through a session: a plan, the lookup that it replaces, and
// the request for load masks that it saves.
func BenchmarkPlan(b *testing.B) {
	pools := map[string]coordinator.Pool{"full": lookuptest.Blocks16, "hybrid": hybridPool}
	for _, pool := range []string{"full", "hybrid"} {
		for _, n := range []int{64, 8192} {
			server := serverOf(b, pools[pool])
			chain := lookuptest.Chain("a", n, 32)
			lookuptest.StorePrefix(b, server.service, chain, n)
			prompt := netproto.Prompt{NumTokens: uint32(16 * n), NumHashes: uint32(n)}
			for _, c := range []struct {
				name string
				msg  []byte
			}{
				{"lookup", lookupOf("id", chain)}, {"plan", planOf("id", chain)},
				{"load_mask", maskOf("id", netproto.TagLoadMask, prompt)}, {"lookup_mask", maskOf("id", netproto.TagLookupMask, prompt)},
			} {
				b.Run(fmt.Sprintf("pool=%s/hashes=%d/%s", pool, n, c.name), func(b *testing.B) {
					var got replies
					ses := newSession(server, &got, nil)
					b.ReportAllocs()
					for b.Loop() {
						require.NoError(b, ses.receive(c.msg))
					}
				})
			}
		}
	}
}

// BenchmarkMaskRuns is the time of a run of a mask, in work units of a turn too.
func BenchmarkMaskRuns(b *testing.B) {
	server := serverOf(b, windowPool)
	var got replies
	ses := newSession(server, &got, nil)
	msg := maskOf("", netproto.TagLookupMask, netproto.Prompt{NumTokens: 64 * netproto.MaxRuns / 2})
	for b.Loop() {
		require.NoError(b, ses.receive(msg))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/netproto.MaxRuns, "ns/run")
}
