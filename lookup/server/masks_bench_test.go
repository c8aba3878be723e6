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
					ses := openSession(server, &got, nil)
					b.ReportAllocs()
					for b.Loop() {
						require.NoError(b, turn(ses, c.msg))
					}
				})
			}
		}
	}
}

// BenchmarkMaskRuns is the time of a run of a mask, in work units of a turn too.
func BenchmarkMaskRuns(b *testing.B) {
	server := serverOf(b, lookuptest.WindowPool)
	var got replies
	ses := openSession(server, &got, nil)
	msg := maskOf("", netproto.TagLookupMask, netproto.Prompt{NumTokens: 64 * netproto.MaxRuns / 2})
	for b.Loop() {
		require.NoError(b, turn(ses, msg))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/netproto.MaxRuns, "ns/run")
}

// BenchmarkPlanRoundTrip asks over loopback TCP, client and server in one process.
func BenchmarkPlanRoundTrip(b *testing.B) {
	for _, n := range []int{64, 8192} {
		server := startServer(b, blocks16, Limits{})
		chain := lookuptest.Chain("a", n, 32)
		lookuptest.StorePrefix(b, server.service, chain, n)
		c, hashes := dialTest(b, server), coordinator.NewHashes(chain, 32)
		for name, ask := range map[string]func() error{
			"lookup": func() error { _, err := c.Lookup(b.Context(), int64(16*n), hashes); return err },
			"plan":   func() error { _, err := c.Plan(b.Context(), int64(16*n), hashes); return err },
			"lookup, load_mask": func() error {
				hit, err := c.Lookup(b.Context(), int64(16*n), hashes)
				if err == nil {
					_, err = c.LoadMask(b.Context(), n, hit.Tokens)
				}
				return err
			},
		} {
			b.Run(fmt.Sprintf("hashes=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, ask())
				}
			})
		}
	}
}
