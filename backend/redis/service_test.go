package redis

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// TestKilledServer kills a server, or a node of a cluster, under the load of several clients
// over TCP. Every lookup is answered in time, with a hit of 0, and stat counts the reason.
// The breaker opens. After a restart hits are right again.
func TestKilledServer(t *testing.T) {
	single, c := storetest.StartRedis(t), sharedCluster(t)
	for url, victim := range map[string]*storetest.Redis{"redis://" + single.Addr: single, c.URL(): c.Nodes[1]} {
		name, _, _ := strings.Cut(url, ":")
		t.Run(name, func(t *testing.T) {
			b := testBackend(t, Config{URL: url})
			srv, cl := serve(t, b, lookup.RemoteConfig{
				Timeout: testTimeout / 4, BreakerFailures: 3, BreakerPause: 50 * time.Millisecond})
			blob := conformance.Blob("killed", chainHashes, 32)
			require.NoError(t, cl.Store(testContext(t), coordinator.GroupRank{}, coordinator.NewHashes(blob, 32)))
			require.EqualValues(t, fullHit, hitOf(t, cl, blob, false))

			load := startLoad(t, srv.Addrs()[0], blob)
			require.Eventually(t, func() bool { return load.right.Load() > 50 }, testTimeout, time.Millisecond)
			require.Zero(t, load.none.Load())
			victim.Kill()
			load.waitInFlight(t)
			load.dead.Store(true)
			require.Eventually(t, func() bool { return srv.Stat().BackendState == "open" }, testTimeout, time.Millisecond)
			require.Eventually(t, func() bool { return load.none.Load() > 500 }, testTimeout, time.Millisecond)
			load.dead.Store(false)
			stat := srv.Stat()
			require.Positive(t, stat.BackendRejected)
			require.Positive(t, stat.BackendErrors+stat.BackendTimeouts)
			require.Zero(t, stat.RequestsRefused, "none is refused")

			load.filling.Store(true)
			victim.Stop()
			victim.Start(t)
			if victim != single {
				c.WaitReady(t)
			}
			require.Eventually(t, func() bool { // it starts empty
				return cl.Store(testContext(t), coordinator.GroupRank{}, coordinator.NewHashes(blob, 32)) == nil
			}, testTimeout, 10*time.Millisecond)
			require.Eventually(t, func() bool { return hitOf(t, cl, blob, false) == fullHit }, testTimeout, time.Millisecond)
			load.filling.Store(false)
			before := load.right.Load()
			require.Eventually(t, func() bool { return load.right.Load() > before+50 }, testTimeout, time.Millisecond, "for all of them")
			load.stop()
			require.EqualValues(t, fullHit, hitOf(t, cl, blob, false))
			require.Equal(t, "closed", srv.Stat().BackendState)
			t.Logf("%d right, %d none, the slowest %v", load.right.Load(), load.none.Load(), time.Duration(load.slowest.Load()))
			require.Less(t, time.Duration(load.slowest.Load()), maxLookupTime)
		})
	}
}

// chainHashes is the number of hashes of a lookup, fullHit the hit of all of them in tokens.
const chainHashes, fullHit = 512, 512 * 16

// maxLookupTime bounds the time of a lookup. Its deadline is earlier, but the machine may be
// busy.
const maxLookupTime = testTimeout / 2

// serve starts a server over the backend and returns a client of it.
func serve(t *testing.T, b *Backend, remote lookup.RemoteConfig) (*server.Server, *client.Client) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{ModelName: "m", HashBlockSize: 16}, Backend: b, Remote: remote})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{
		Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 2, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, srv.Start(testContext(t)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
	cl, err := client.Dial(testContext(t), srv.Addrs()[0], client.WithTimeout(testTimeout))
	require.NoError(t, err)
	t.Cleanup(func() { _ = cl.Close() })
	return srv, cl
}

// hitOf returns the hit of a lookup in tokens. It must be fullHit or 0, or anything between
// them while a store runs, which is not atomic.
func hitOf(t *testing.T, cl *client.Client, blob []byte, filling bool) uint32 {
	hit, err := cl.Lookup(testContext(t), fullHit, coordinator.NewHashes(blob, 32))
	if err != nil || hit.Tokens != 0 && hit.Tokens != fullHit && !filling {
		t.Errorf("hit %d, error %v", hit.Tokens, err)
	}
	return uint32(hit.Tokens)
}

// load sends lookups from several clients until stop.
type load struct {
	dead        atomic.Bool     // the store is killed
	filling     atomic.Bool     // a store runs after the restart
	right, none atomic.Int64    // answers with the full hit, with a hit of 0
	all         [8]atomic.Int64 // answers, by client
	slowest     atomic.Int64    // longest lookup, in nanoseconds
	stop        func()
}

// waitInFlight waits until the lookups in flight have ended, so that later answers are about
// the present state of the store.
func (l *load) waitInFlight(t *testing.T) {
	for i := range l.all {
		before := l.all[i].Load()
		require.Eventually(t, func() bool { return l.all[i].Load() >= before+2 }, testTimeout, time.Millisecond)
	}
}

func startLoad(t *testing.T, addr string, blob []byte) *load {
	l := &load{}
	var over atomic.Bool
	var clients sync.WaitGroup
	l.stop = sync.OnceFunc(func() { over.Store(true); clients.Wait() })
	t.Cleanup(l.stop)
	for i := range l.all {
		cl, err := client.Dial(testContext(t), addr, client.WithTimeout(testTimeout))
		require.NoError(t, err)
		clients.Go(func() {
			defer cl.Close()
			for !over.Load() {
				wasDead, start := l.dead.Load(), time.Now()
				hit := hitOf(t, cl, blob, l.filling.Load())
				for took, slowest := int64(time.Since(start)), l.slowest.Load(); took > slowest && !l.slowest.CompareAndSwap(slowest, took); {
					slowest = l.slowest.Load()
				}
				l.all[i].Add(1)
				switch {
				case hit == 0:
					l.none.Add(1)
					time.Sleep(time.Millisecond)
				case wasDead && l.dead.Load():
					t.Error("a hit in a dead server")
				default:
					l.right.Add(1)
				}
			}
		})
	}
	return l
}

// BenchmarkExists asks for 8,192 keys, alternating with a bare pipeline of the driver. ratio
// is the backend's median time divided by the pipeline's.
func BenchmarkExists(b *testing.B) {
	s, c := storetest.StartRedis(b), sharedCluster(b)
	keys := blocks("m", 8192)
	bare := map[string]goredis.UniversalClient{
		"single":  goredis.NewClient(&goredis.Options{Addr: s.Addr}),
		"cluster": goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr}}),
	}
	for _, rdb := range bare {
		defer rdb.Close()
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
	for kind, url := range map[string]string{"single": "redis://" + s.Addr, "cluster": c.URL()} {
		for name, want := range map[string][]int{"hit": all, "half": half, "scattered": scattered} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				benchmarkExists(b, testBackend(b, Config{URL: url}), bare[kind], keys, want)
			})
		}
	}
}

// benchmarkExists stores the keys that want has, then measures ours beside a
// pipeline of EXISTS by rdb.
func benchmarkExists(b *testing.B, ours *Backend, rdb goredis.UniversalClient, keys []string, want []int) {
	ctx := context.Background()
	var present []string
	for i, w := range want {
		if w == 1 {
			present = append(present, keys[i])
		}
	}
	require.NoError(b, ours.Reset(ctx))
	require.NoError(b, ours.Store(ctx, present))
	var ourTimes, bareTimes []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		got, err := ours.Exists(ctx, backend.KeyList(keys), false)
		ourTimes = append(ourTimes, time.Since(start))
		if err != nil || !slices.Equal(got, want) {
			b.Fatal("wrong", err)
		}
		start = time.Now()
		pipe := rdb.Pipeline()
		for _, key := range keys {
			pipe.Exists(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			b.Fatal(err)
		}
		bareTimes = append(bareTimes, time.Since(start))
	}
	ourMedian, bareMedian := median(ourTimes), median(bareTimes)
	b.ReportMetric(float64(ourMedian)/float64(bareMedian), "ratio")
	b.ReportMetric(float64(ourMedian.Microseconds()), "us/ours")
	b.ReportMetric(float64(bareMedian.Microseconds()), "us/bare")
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// TestFullServer fills a server that evicts nothing. It refuses stores, and lookups still find
// what is stored.
func TestFullServer(t *testing.T) {
	s := storetest.StartRedis(t, "--maxmemory-policy", "noeviction")
	pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}}
	require.NoError(t, s.Client(t).ConfigSet(testContext(t), "maxmemory", "0").Err())
	coord, err := coordinator.New(pool)
	require.NoError(t, err)
	b := testBackend(t, Config{URL: "redis://" + s.Addr, KeyPrefix: PoolPrefix(coord)})
	remote := lookup.RemoteConfig{Timeout: testTimeout, WriteTimeout: testTimeout, BreakerFailures: 2, BreakerPause: time.Hour}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: b, Remote: remote})
	require.NoError(t, err)
	stored := []byte(strings.Repeat("hash----", 4))
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(stored, len(stored))))
	require.NoError(t, s.Client(t).ConfigSet(testContext(t), "maxmemory", "1").Err())
	for range 5 {
		require.ErrorContains(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(make([]byte, 32), 32)), "OOM")
	}
	hit, err := service.Lookup(t.Context(), 16, coordinator.NewHashes(stored, len(stored)))
	require.NoError(t, err)
	require.EqualValues(t, 16, hit.Tokens)
}
