package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// TestConformanceWorkerLookup looks the reference's cases up in a real server, which
// a backend fills with what the case's store holds.
func TestConformanceWorkerLookup(t *testing.T) {
	s := startServer(t)
	client := s.client(t)
	most := 250
	if testing.Short() {
		most = 60
	}
	for file, revision := range map[string]coordinator.Revision{
		"worker_lookup.json": coordinator.Revision20260620, "later/worker_lookup.json": coordinator.Revision20260817,
	} {
		for _, layout := range layouts {
			t.Run(file+" "+string(layout), func(t *testing.T) {
				judged := 0
				conformance.Run(t, file, func(c *conformance.WorkerCase) conformance.Verdict {
					if c.Store != "normal" {
						return conformance.Skipped("its store answers as no server does")
					}
					if judged == most {
						return conformance.Skipped("enough; package lookup's tests judge all, in process")
					}
					judged++
					return judge(client, s, c, revision, layout)
				})
				require.Equal(t, most, judged)
			})
		}
	}
}

func judge(client *goredis.Client, s *server, c *conformance.WorkerCase, revision coordinator.Revision, layout Layout) conformance.Verdict {
	var pool coordinator.Pool
	if err := json.Unmarshal(c.Raw, &pool); err != nil {
		return conformance.Differs("pool: %v", err)
	}
	pool.Revision = revision
	coord, err := coordinator.New(pool)
	if err != nil {
		return conformance.Differs("coordinator: %v", err)
	}
	content, err := c.Content()
	if err != nil {
		return conformance.Differs("content: %v", err)
	}
	b, err := New(Config{URL: "redis://" + s.addr, Layout: layout, KeyPrefix: PoolPrefix(coord)})
	if err != nil {
		return conformance.Differs("backend: %v", err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Store(ctx, slices.Sorted(maps.Keys(content))); err != nil {
		return conformance.Differs("store: %v", err)
	}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: b, Remote: lookup.RemoteConfig{Timeout: patience}})
	if err != nil {
		return conformance.Differs("service: %v", err)
	}
	hit, err := service.Lookup(uint64(c.TokenLen), netproto.NewHashes(c.Blob(), c.HashLen))
	switch {
	case (err != nil) != (c.Expect.Error != ""):
		return conformance.Differs("error %v, want %q", err, c.Expect.Error)
	case err == nil && int64(hit) != c.Expect.HitLength:
		return conformance.Differs("hit %d, want %d", hit, c.Expect.HitLength)
	}
	if stat := service.Stat(); stat.BackendErrors+stat.BackendTimeouts+stat.BackendRejected != 0 {
		return conformance.Differs("the backend failed: %+v", stat)
	}
	if err := b.Reset(ctx); err != nil {
		return conformance.Differs("reset: %v", err)
	}
	if left := client.DBSize(ctx).Val(); left != 0 {
		return conformance.Differs("a reset leaves %d keys", left)
	}
	return conformance.Verdict{}
}

// TestKilledServer kills a server, or a node of a cluster, under load: every lookup
// is answered in time, the breaker opens, and all is right after a restart.
func TestKilledServer(t *testing.T) {
	single, c := startServer(t), sharedCluster(t)
	for url, victim := range map[string]*server{"redis://" + single.addr: single, c.url(): c.nodes[1]} {
		name, _, _ := strings.Cut(url, ":")
		t.Run(name, func(t *testing.T) {
			pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16}
			b := testBackend(t, Config{URL: url})
			const timeout = 300 * time.Millisecond
			service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: b, Remote: lookup.RemoteConfig{
				Timeout: timeout, BreakerFailures: 3, BreakerPause: 50 * time.Millisecond}})
			require.NoError(t, err)
			const hashes, full = 512, 512 * 16
			blob := conformance.Blob("killed", hashes, 32, nil)
			require.NoError(t, service.Store(lookup.Place{}, blob, 32))
			ask := func() uint32 {
				begun := time.Now()
				hit, err := service.Lookup(full, netproto.NewHashes(blob, 32))
				if err != nil || hit != 0 && hit != full || time.Since(begun) > timeout+200*time.Millisecond {
					t.Errorf("hit %d, error %v, after %v", hit, err, time.Since(begun))
				}
				return hit
			}
			require.EqualValues(t, full, ask())

			var dead, over atomic.Bool
			var full1, none atomic.Int64
			var load sync.WaitGroup
			for range 8 {
				load.Go(func() {
					for !over.Load() {
						known := dead.Load() // before the lookup begins
						switch hit := ask(); {
						case hit == 0:
							none.Add(1)
							time.Sleep(time.Millisecond)
						case known:
							t.Error("a hit in a dead server")
						default:
							full1.Add(1)
						}
					}
				})
			}
			require.Eventually(t, func() bool { return full1.Load() > 50 }, patience, time.Millisecond)
			require.Zero(t, none.Load())
			victim.kill()
			time.Sleep(20 * time.Millisecond) // what the kernel still has is read
			dead.Store(true)
			require.Eventually(t, func() bool { return service.Stat().BackendState == "open" }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return none.Load() > 500 }, patience, time.Millisecond)
			over.Store(true)
			load.Wait()
			stat := service.Stat()
			require.Positive(t, stat.BackendRejected)
			require.Positive(t, stat.BackendErrors+stat.BackendTimeouts)

			victim.stop()
			victim.start(t)
			if victim != single {
				c.ready(t)
			}
			require.Eventually(t, func() bool { // it comes back empty
				return service.Store(lookup.Place{}, blob, 32) == nil
			}, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool { return ask() == full }, patience, time.Millisecond)
			for range 100 {
				require.EqualValues(t, full, ask())
			}
			require.Equal(t, "closed", service.Stat().BackendState)
		})
	}
}

// BenchmarkExists asks for 8,192 keys that are all there, beside a bare pipeline of
// the driver, by turns; ratio is the backend's time to the pipeline's.
func BenchmarkExists(b *testing.B) {
	s, c := startServer(b), sharedCluster(b)
	keys := blocks("m", 8192)
	bare := map[string]goredis.UniversalClient{
		"single":  goredis.NewClient(&goredis.Options{Addr: s.addr}),
		"cluster": goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{c.nodes[0].addr}}),
	}
	for _, client := range bare {
		defer client.Close()
	}
	all := make([]int, len(keys))
	half := make([]int, len(keys))
	scattered := make([]int, len(keys))
	for i := range keys {
		all[i] = 1
		if i < len(keys)/2 {
			half[i] = 1
		}
		if i*7919%10 < 5 {
			scattered[i] = 1
		}
	}
	for kind, url := range map[string]string{"single": "redis://" + s.addr, "cluster": c.url()} {
		for _, layout := range layouts {
			for name, want := range map[string][]int{"hit": all, "half": half, "scattered": scattered} {
				b.Run(fmt.Sprintf("%s/%s/%s", kind, layout, name), func(b *testing.B) {
					ours := testBackend(b, Config{URL: url, Layout: layout})
					plain := testBackend(b, Config{URL: url})
					ctx := context.Background()
					require.NoError(b, ours.Reset(ctx))
					require.NoError(b, plain.Reset(ctx))
					var store []string
					for i, w := range want {
						if w == 1 {
							store = append(store, keys[i])
						}
					}
					require.NoError(b, ours.Store(ctx, store))
					require.NoError(b, plain.Store(ctx, store))
					var mine, other []time.Duration
					b.ReportAllocs()
					for b.Loop() {
						begun := time.Now()
						got, err := ours.Exists(ctx, keys)
						mine = append(mine, time.Since(begun))
						if err != nil || !slices.Equal(got, want) {
							b.Fatal("wrong", err)
						}
						begun = time.Now()
						pipe := bare[kind].Pipeline()
						for _, key := range keys {
							pipe.Exists(ctx, key)
						}
						if _, err := pipe.Exec(ctx); err != nil {
							b.Fatal(err)
						}
						other = append(other, time.Since(begun))
					}
					slices.Sort(mine)
					slices.Sort(other)
					ratio := float64(mine[len(mine)/2]) / float64(other[len(other)/2])
					b.ReportMetric(ratio, "ratio")
					b.ReportMetric(float64(mine[len(mine)/2].Microseconds()), "us/ours")
					b.ReportMetric(float64(other[len(other)/2].Microseconds()), "us/bare")
				})
			}
		}
	}
}
