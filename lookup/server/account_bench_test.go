package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// BenchmarkAccount is what a lookup costs its event loop, without an account and with one that a goroutine keeps. Prompts are
// all new, or one that is found.
func BenchmarkAccount(b *testing.B) {
	for _, account := range []struct {
		name  string
		bytes int
	}{{"off", -1}, {"on", 0}} {
		for _, n := range []int{64, 1024, 16384} {
			for _, isNew := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%d hashes/new %v", account.name, n, isNew), func(b *testing.B) {
					service, err := lookup.NewService(blocks16)
					require.NoError(b, err)
					server, err := New(service, Config{AccountBytes: account.bytes})
					require.NoError(b, err)
					server.accounts.start()
					defer server.accounts.stop()
					hashes := lookuptest.Chain("a", n, 32)
					require.NoError(b, service.Store(b.Context(), coordinator.GroupRank{}, coordinator.NewHashes(hashes, 32)))
					message := append(netproto.AppendLookup(nil, nil, uint32(16*n), 32, len(hashes)), hashes...)
					blob := message[len(message)-len(hashes):]
					var got replies
					ses := openSession(server, &got)
					for i := 0; b.Loop(); i++ {
						if isNew {
							for at := 24; at < len(blob); at += 32 { // another prompt each time
								blob[at], blob[at+1], blob[at+2] = byte(i), byte(i>>8), byte(i>>16)
							}
						}
						if err := serveTurn(ses, message); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
