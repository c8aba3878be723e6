package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// promptSet is chains that a server has in whole, in part, or not at all.
type promptSet struct {
	chains [][]byte
	stored []int // how many leading hashes of each are stored
}

func drawPrompts(r *rand.Rand) (s promptSet) {
	for i := range 300 {
		n := 1 + r.IntN(100)
		if i%100 == 0 {
			n = 4096 // several of them are all bytes that a client may have in flight
		}
		s.chains = append(s.chains, lookuptest.Chain(fmt.Sprint(i), n, 32))
		s.stored = append(s.stored, []int{n, r.IntN(n + 1), 0}[i%3])
	}
	return s
}

// lookups draws lookups of the chains, each of a whole chain or of its beginning.
func (s *promptSet) lookups(r *rand.Rand, n int) []BatchLookup {
	asks := make([]BatchLookup, n)
	for i := range asks {
		chain := s.chains[r.IntN(len(s.chains))]
		hashes := 1 + r.IntN(len(chain)/32)
		asks[i] = BatchLookup{NumTokens: int64(16 * hashes), Hashes: coordinator.NewHashes(chain[:32*hashes], 32)}
	}
	return asks
}

// serve starts a server that has what is stored, over memory, or over a store whose calls take as
// long as delay says.
func (s *promptSet) serve(t *testing.T, overStore bool, delay time.Duration) testServer {
	cfg := blocks16
	if overStore {
		cfg.Backend = &lookuptest.KeyStore{Before: func(ctx context.Context, op string, _ []string) error {
			if op == "exists" {
				time.Sleep(delay)
			}
			return nil
		}}
		cfg.Remote = lookup.RemoteConfig{Timeout: lookuptest.Patience, WriteTimeout: lookuptest.Patience}
	}
	srv := startServer(t, cfg, server.Limits{})
	for i, chain := range s.chains {
		require.NoError(t, srv.service.Store(background, coordinator.GroupRank{}, coordinator.NewHashes(chain[:32*s.stored[i]], 32)))
	}
	return srv
}

// A client sends no more at once than the server admits: batches of any size are answered, as an idle
// server answers their lookups one by one, none as busy, and no connection is closed.
func TestBatchKeepsToTheLimits(t *testing.T) {
	const size = 10_000
	for name, overStore := range map[string]bool{"memory": false, "a store of 1 ms a call": true} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			r := rand.New(rand.NewPCG(1, 2))
			prompts := drawPrompts(r)
			asks := prompts.lookups(r, size)
			want := make([]int64, size)
			idle := dialTest(t, prompts.serve(t, overStore, 0))
			hits := map[bool]int{}
			for i, ask := range asks {
				hit, err := idle.Lookup(background, ask.NumTokens, ask.Hashes)
				require.NoError(t, err)
				want[i] = hit.Tokens
				hits[hit.Tokens > 0]++
			}
			require.Greater(t, min(hits[true], hits[false]), size/10)

			srv := prompts.serve(t, overStore, time.Millisecond)
			for _, clients := range []int{1, 2} {
				done := make(chan error, clients)
				batches := make([][]BatchLookup, clients)
				for i := range batches {
					batches[i] = slices.Clone(asks)
					c := dialTest(t, srv)
					go func() { done <- c.Batch(background, batches[i]) }()
				}
				for range batches {
					require.NoError(t, <-done)
				}
				for _, batch := range batches {
					for i := range batch {
						require.NoError(t, batch[i].Err)
						require.Equal(t, want[i], batch[i].Hit.Tokens, i)
					}
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
