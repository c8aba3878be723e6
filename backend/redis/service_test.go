package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// TestConformanceWorkerLookup looks the reference's cases up in a real server, which
// a backend fills with what the case's store holds.
func TestConformanceWorkerLookup(t *testing.T) {
	s := storetest.StartRedis(t)
	client := s.Client(t)
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

func judge(client *goredis.Client, s *storetest.Redis, c *conformance.WorkerCase, revision coordinator.Revision, layout Layout) conformance.Verdict {
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
	b, err := New(Config{URL: "redis://" + s.Addr, Layout: layout, KeyPrefix: PoolPrefix(coord), DialTimeout: patience, IOTimeout: patience})
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
	hit, err := service.Lookup(context.Background(), c.TokenLen, netproto.NewHashes(c.Blob(), c.HashLen))
	switch {
	case (err != nil) != (c.Expect.Error != ""):
		return conformance.Differs("error %v, want %q", err, c.Expect.Error)
	case err == nil && hit.Tokens != c.Expect.HitLength:
		return conformance.Differs("hit %d, want %d", hit.Tokens, c.Expect.HitLength)
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

// TestKilledServer kills a server, or a node of a cluster, under the load of several
// clients over TCP: every lookup is answered in time, with a hit of 0 that stat
// explains, the breaker opens, and all is right after a restart.
func TestKilledServer(t *testing.T) {
	single, c := storetest.StartRedis(t), sharedCluster(t)
	for url, victim := range map[string]*storetest.Redis{"redis://" + single.Addr: single, c.URL(): c.Nodes[1]} {
		name, _, _ := strings.Cut(url, ":")
		t.Run(name, func(t *testing.T) {
			b := testBackend(t, Config{URL: url})
			server, client := serve(t, b, lookup.RemoteConfig{
				Timeout: patience / 4, BreakerFailures: 3, BreakerPause: 50 * time.Millisecond})
			blob := conformance.Blob("killed", chain, 32, nil)
			require.NoError(t, client.Store(soon(t), lookup.GroupRank{}, netproto.NewHashes(blob, 32)))
			require.EqualValues(t, full, hitOf(t, client, blob, false))

			load := startLoad(t, server.Addrs()[0], blob)
			require.Eventually(t, func() bool { return load.right.Load() > 50 }, patience, time.Millisecond)
			require.Zero(t, load.none.Load())
			victim.Kill()
			load.forgets(t)
			load.dead.Store(true)
			require.Eventually(t, func() bool { return server.Stat().BackendState == "open" }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return load.none.Load() > 500 }, patience, time.Millisecond)
			load.dead.Store(false)
			stat := server.Stat()
			require.Positive(t, stat.BackendRejected)
			require.Positive(t, stat.BackendErrors+stat.BackendTimeouts)
			require.Zero(t, stat.Failed, "none is refused")

			load.filling.Store(true)
			victim.Stop()
			victim.Start(t)
			if victim != single {
				c.Ready(t)
			}
			require.Eventually(t, func() bool { // it comes back empty
				return client.Store(soon(t), lookup.GroupRank{}, netproto.NewHashes(blob, 32)) == nil
			}, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool { return hitOf(t, client, blob, false) == full }, patience, time.Millisecond)
			load.filling.Store(false)
			before := load.right.Load()
			require.Eventually(t, func() bool { return load.right.Load() > before+50 }, patience, time.Millisecond, "for all of them")
			load.stop()
			require.EqualValues(t, full, hitOf(t, client, blob, false))
			require.Equal(t, "closed", server.Stat().BackendState)
			t.Logf("%d right, %d none, the slowest %v", load.right.Load(), load.none.Load(), time.Duration(load.slowest.Load()))
			require.Less(t, time.Duration(load.slowest.Load()), limit)
		})
	}
}

// chain is how many hashes the lookups have, and full the hit of all.
const chain, full = 512, 512 * 16

// limit bounds a lookup whose deadline is sooner, on a machine that is busy with other
// things.
const limit = patience / 2

// serve starts a server over the backend, and a client of it.
func serve(t *testing.T, b *Backend, remote lookup.RemoteConfig) (*server.Server, *client.Client) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{ModelName: "m", HashBlockSize: 16}, Backend: b, Remote: remote})
	require.NoError(t, err)
	server, err := server.New(service, server.Config{
		Listen: []string{"tcp://127.0.0.1:0"}, Loops: 2, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, server.Start(soon(t)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	client, err := client.Dial(soon(t), server.Addrs()[0], client.WithTimeout(patience))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

// hitOf returns the hit of a lookup, which is all or nothing, or a part while all is
// being stored: that is no one step for the server.
func hitOf(t *testing.T, client *client.Client, blob []byte, filling bool) uint32 {
	hit, err := client.Lookup(soon(t), full, netproto.NewHashes(blob, 32))
	if err != nil || hit.Tokens != 0 && hit.Tokens != full && !filling {
		t.Errorf("hit %d, error %v", hit.Tokens, err)
	}
	return uint32(hit.Tokens)
}

// load is lookups without end, of several clients.
type load struct {
	dead        atomic.Bool // the store is
	filling     atomic.Bool // it is there again, and a store is under way
	right, none atomic.Int64
	all         [8]atomic.Int64 // answers, by client
	slowest     atomic.Int64
	stop        func()
}

// forgets waits until the lookups that are under way have ended: then nobody can be
// told any longer what the server answered until now.
func (l *load) forgets(t *testing.T) {
	for i := range l.all {
		before := l.all[i].Load()
		require.Eventually(t, func() bool { return l.all[i].Load() >= before+2 }, patience, time.Millisecond)
	}
}

func startLoad(t *testing.T, addr string, blob []byte) *load {
	l := &load{}
	var over atomic.Bool
	var clients sync.WaitGroup
	l.stop = sync.OnceFunc(func() { over.Store(true); clients.Wait() })
	t.Cleanup(l.stop)
	for i := range l.all {
		client, err := client.Dial(soon(t), addr, client.WithTimeout(patience))
		require.NoError(t, err)
		clients.Go(func() {
			defer client.Close()
			for !over.Load() {
				known, begun := l.dead.Load(), time.Now()
				hit := hitOf(t, client, blob, l.filling.Load())
				for took, slowest := int64(time.Since(begun)), l.slowest.Load(); took > slowest && !l.slowest.CompareAndSwap(slowest, took); {
					slowest = l.slowest.Load()
				}
				l.all[i].Add(1)
				switch {
				case hit == 0:
					l.none.Add(1)
					time.Sleep(time.Millisecond)
				case known && l.dead.Load():
					t.Error("a hit in a dead server")
				default:
					l.right.Add(1)
				}
			}
		})
	}
	return l
}

// BenchmarkExists asks for 8,192 keys that are all there, beside a bare pipeline of
// the driver, by turns; ratio is the backend's time to the pipeline's.
func BenchmarkExists(b *testing.B) {
	s, c := storetest.StartRedis(b), sharedCluster(b)
	keys := blocks("m", 8192)
	bare := map[string]goredis.UniversalClient{
		"single":  goredis.NewClient(&goredis.Options{Addr: s.Addr}),
		"cluster": goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr}}),
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
	for kind, url := range map[string]string{"single": "redis://" + s.Addr, "cluster": c.URL()} {
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

// TestFullServer fills a server that evicts nothing: its stores are refused, and what is
// there is found all the same.
func TestFullServer(t *testing.T) {
	s := storetest.StartRedis(t, "--maxmemory-policy", "noeviction")
	pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}}
	for _, layout := range layouts {
		require.NoError(t, s.Client(t).ConfigSet(soon(t), "maxmemory", "0").Err())
		coord, err := coordinator.New(pool)
		require.NoError(t, err)
		b := testBackend(t, Config{URL: "redis://" + s.Addr, Layout: layout, KeyPrefix: PoolPrefix(coord)})
		remote := lookup.RemoteConfig{Timeout: patience, WriteTimeout: patience, BreakerFailures: 2, BreakerPause: time.Hour}
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: b, Remote: remote})
		require.NoError(t, err)
		stored := []byte(strings.Repeat(string(layout)+"----", 4))
		require.NoError(t, service.Store(t.Context(), lookup.GroupRank{}, netproto.NewHashes(stored, len(stored))))
		require.NoError(t, s.Client(t).ConfigSet(soon(t), "maxmemory", "1").Err())
		for range 5 {
			require.ErrorContains(t, service.Store(t.Context(), lookup.GroupRank{}, netproto.NewHashes(make([]byte, 32), 32)), "OOM")
		}
		hit, err := service.Lookup(t.Context(), 16, netproto.NewHashes(stored, len(stored)))
		require.NoError(t, err)
		require.EqualValues(t, 16, hit.Tokens, layout)
	}
}
