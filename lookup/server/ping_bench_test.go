package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/client"
)

// BenchmarkPingBesideSlowStore measures pings while nothing else happens, and while as
// many connections as it says ask a slow store for 8,192 hashes each, one lookup
// after the other.
func BenchmarkPingBesideSlowStore(b *testing.B) {
	for _, asking := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("asking=%d", asking), func(b *testing.B) {
			const hashes = 8192
			server := startChild(b, childConfig{Listen: []string{"tcp://127.0.0.1:0"}, Slow: 20 * time.Millisecond})
			dial := func() *client.Client {
				c, err := client.Dial(context.Background(), server.addr, client.WithTimeout(lookuptest.Patience))
				require.NoError(b, err)
				return c
			}
			pinger := dial()
			defer pinger.Close()
			pings := func() []time.Duration {
				took := make([]time.Duration, 0, 2000)
				for range cap(took) {
					begun := time.Now()
					pingClient(b, pinger)
					took = append(took, time.Since(begun))
					time.Sleep(100 * time.Microsecond)
				}
				return took
			}
			pings()
			var quiet, loaded []time.Duration
			var lookups atomic.Int64
			for b.Loop() {
				quiet = append(quiet, pings()...)
				ctx, cancel := context.WithCancel(context.Background())
				var askers sync.WaitGroup
				for i := range asking {
					c, keys := dial(), lookuptest.Chain(fmt.Sprint("prompt", i), hashes, 32)
					askers.Go(func() {
						defer c.Close()
						for ctx.Err() == nil {
							if _, err := c.Lookup(ctx, 16*hashes, coordinator.NewHashes(keys, 32)); err == nil {
								lookups.Add(1)
							}
						}
					})
				}
				loaded = append(loaded, pings()...)
				cancel()
				askers.Wait()
			}
			b.ReportMetric(0, "ns/op")
			for name, took := range map[string][]time.Duration{"quiet": quiet, "loaded": loaded} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, name+"-p50-us")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, name+"-p99-us")
			}
			b.ReportMetric(float64(loaded[len(loaded)*99/100])/float64(quiet[len(quiet)*99/100]), "ratio")
			b.ReportMetric(float64(lookups.Load())/float64(b.N), "lookups")
		})
	}
}
