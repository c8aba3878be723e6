package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/client"
)

// BenchmarkTLSRoundTrip measures a lookup without and with TLS, client and server in one process.
func BenchmarkTLSRoundTrip(b *testing.B) {
	for _, n := range []int{64, 512, 8192, 131072} {
		keys := coordinator.NewHashes(lookuptest.Chain("a", n, 32), 32)
		for _, isTLS := range []bool{false, true} {
			b.Run(fmt.Sprintf("tls=%t/hashes=%d", isTLS, n), func(b *testing.B) {
				server, options := startServer(b, blocks16, Limits{}), []client.Option(nil)
				if isTLS {
					server, _ = startTLSServer(b, Limits{}, Settings{TLS: serverTLS})
					options = append(options, client.WithTLS(clientTLS()))
				}
				require.NoError(b, server.pools.own.service.Store(b.Context(), coordinator.GroupRank{}, keys))
				lookups, err := client.Dial(context.Background(), server.Addrs()[0], options...)
				require.NoError(b, err)
				defer lookups.Close()
				for b.Loop() {
					if _, err := lookups.Lookup(context.Background(), int64(16*n), keys); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
