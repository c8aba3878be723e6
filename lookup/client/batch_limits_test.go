package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// Clients send no more at once than the server admits: batches of any size are answered, none as busy, and no connection
// is closed.
func TestBatchKeepsToTheLimits(t *testing.T) {
	const size, longest = 3000, 4096 // hashes: some lookups of them are all bytes that a client may have in flight
	slow := blocks16
	slow.Backend = &lookuptest.KeyStore{Before: func(_ context.Context, op string, _ []string) error {
		if op == "exists" {
			time.Sleep(time.Millisecond)
		}
		return nil
	}}
	slow.Remote = lookup.RemoteConfig{Timeout: lookuptest.Patience, WriteTimeout: lookuptest.Patience}
	chain := lookuptest.Chain("limits", longest, 32)
	for name, cfg := range map[string]lookup.ServiceConfig{"memory": blocks16, "a store of 1 ms a call": slow} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t, cfg, server.Limits{})
			require.NoError(t, srv.service.Store(background, coordinator.GroupRank{}, coordinator.NewHashes(chain[:50*32], 32)))
			batches, done := [2][]BatchLookup{}, make(chan error, 2)
			for i := range batches {
				for k := range size {
					n := 1 + k%100
					if k%1000 == 0 {
						n = longest
					}
					batches[i] = append(batches[i], BatchLookup{NumTokens: int64(16 * n), Hashes: coordinator.NewHashes(chain[:32*n], 32)})
				}
				c := dialTest(t, srv)
				go func() { done <- c.Batch(background, batches[i]) }()
			}
			for range batches {
				require.NoError(t, <-done)
			}
			for _, batch := range batches {
				for _, l := range batch {
					require.NoError(t, l.Err)
					require.Equal(t, min(l.NumTokens, 800), l.Hit.Tokens)
				}
			}
			st := srv.Stat()
			require.Zero(t, st.Busy)
			for reason, n := range st.Closed {
				require.Zero(t, n, reason)
			}
		})
	}
}
