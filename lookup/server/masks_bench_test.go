package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// BenchmarkPlanRoundTrip asks over loopback TCP, client and server in one process.
func BenchmarkPlanRoundTrip(b *testing.B) {
	for _, n := range []int{64, 8192} {
		server := startServer(b, blocks16, Limits{})
		chain := lookuptest.Chain("a", n, 32)
		lookuptest.StorePrefix(b, server.pools.own.service, chain, n)
		c, hashes := dialTest(b, server), coordinator.NewHashes(chain, 32)
		for name, ask := range map[string]func() error{
			"lookup": func() error { _, err := c.Lookup(b.Context(), int64(16*n), hashes); return err },
			"plan":   func() error { _, err := c.Plan(b.Context(), int64(16*n), hashes); return err },
			"lookup, load_mask": func() error {
				hit, err := c.Lookup(b.Context(), int64(16*n), hashes)
				if err == nil {
					_, err = c.LoadMask(b.Context(), hit.Tokens, n)
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
