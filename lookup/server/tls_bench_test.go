package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// BenchmarkTLSRoundTrip is BenchmarkRoundTrip without and with TLS, client and server in one
// process. The rival with TLS is a blocking server.
func BenchmarkTLSRoundTrip(b *testing.B) {
	for _, n := range []int{64, 512, 8192, 131072} {
		keys := coordinator.NewHashes(lookuptest.Chain("a", n, 32), 32)
		for _, c := range []struct {
			rival string
			tls   bool
		}{{"hitline", false}, {"hitline", true}, {"raw", true}} {
			b.Run(fmt.Sprintf("rival=%s/tls=%t/hashes=%d", c.rival, c.tls, n), func(b *testing.B) {
				addr := ""
				if c.rival == "raw" {
					addr = rawTLSServer(b, len(netproto.AppendLookup(nil, nil, 0, 32, 32*n))+32*n)
				} else {
					var server *Server
					if c.tls {
						server, _ = startTLSServer(b, Limits{}, Settings{TLS: serverTLS})
					} else {
						server = startServer(b, blocks16, Limits{})
					}
					require.NoError(b, server.pools.own.service.Store(b.Context(), coordinator.GroupRank{}, keys))
					addr = hostOf(server)
				}
				lookups, err := client.Dial(context.Background(), "tcp://"+addr,
					client.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
						if c.tls {
							return (&tls.Dialer{Config: clientTLS()}).DialContext(ctx, network, addr)
						}
						return (&net.Dialer{}).DialContext(ctx, network, addr)
					}))
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

// rawTLSServer is rawServer with TLS.
func rawTLSServer(b *testing.B, size int) (addr string) {
	return lookuptest.ServeOne(b, func(tcp net.Conn) { answerRaw(tls.Server(tcp, tlsConfigOf(serverTLS)), size) })
}

// BenchmarkTLSHandshake measures a connection with its handshake, a ping, and its end.
func BenchmarkTLSHandshake(b *testing.B) {
	mutual := serverTLS.Clone()
	mutual.ClientCAs = authority.Pool()
	for name, cfg := range map[string]*tls.Config{"server": serverTLS, "mutual": mutual} {
		b.Run("certificates="+name, func(b *testing.B) {
			server, _ := startTLSServer(b, Limits{}, Settings{TLS: cfg})
			cfg := clientTLS(authority.Leaf("engine"))
			for b.Loop() {
				conn, err := tls.Dial("tcp", hostOf(server), cfg)
				require.NoError(b, err)
				require.NoError(b, pingPong(conn))
				require.NoError(b, conn.Close())
			}
		})
	}
}
