package mooncake

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// TestMaster runs several tests over one real master.
func TestMaster(t *testing.T) {
	w := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	m := storetest.StartMaster(t, w, "")
	n := storetest.StartNode(t, w, m)
	c := newClient(t, Config{Masters: []string{m.RPC}})
	t.Run("conformance", func(t *testing.T) { masterConformance(t, c, n) })
	t.Run("lease", func(t *testing.T) { masterLease(t, c, n) })
	t.Run("many keys", func(t *testing.T) { masterManyKeys(t, c, n) })
	t.Run("freezes", func(t *testing.T) { masterFreezes(t, c, n, m) })
	t.Run("node dies", func(t *testing.T) { masterNodeDies(t, c, n) })
}

// caseStride selects every third case: all 1,130 would take too long.
const caseStride = 3

// everyNth returns every n-th element of list, from the first.
func everyNth[T any](list []T, n int) (some []T) {
	for i := 0; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}

// masterConformance runs the reference's cases with a hitline server over the master.
func masterConformance(t *testing.T, c *Client, n *storetest.Node) {
	for file, vllm := range map[string]string{"worker_lookup.json": "", "later/worker_lookup.json": "0.28.0"} {
		cases := slices.DeleteFunc(conformance.LoadWorkers(t, file), func(c *conformance.WorkerCase) bool { return c.Store != "normal" })
		cases = everyNth(cases, caseStride)
		var keys []string
		for _, wc := range cases { // hashes depend on the case's name: no two cases share a key
			content, err := wc.Content()
			require.NoError(t, err)
			keys = slices.AppendSeq(keys, maps.Keys(content))
		}
		n.Put(keys...)
		t.Logf("%s: %d keys are in the store", file, len(keys))
		report := conformance.NewReport(t, file+" over a Mooncake master")
		for _, wc := range cases {
			report.Add(wc.ID, judge(t, wc, vllm, c))
		}
		report.Done()
	}
}

func judge(t *testing.T, wc *conformance.WorkerCase, vllm string, c *Client) conformance.Verdict {
	if wc.TokenLen < 0 || wc.TokenLen >= 1<<32 {
		return conformance.Skipped("cannot be sent")
	}
	pool := coordinator.Pool{}
	require.NoError(t, json.Unmarshal(wc.Raw, &pool))
	pool.VLLM = vllm
	srv, cl, stop := serve(t, pool, c, lookup.RemoteConfig{Timeout: testTimeout})
	defer stop()
	hit, err := cl.Lookup(contextWithin(t, testTimeout), wc.TokenLen, coordinator.NewHashes(wc.Blob(), wc.HashLen))
	stat := srv.Stat()
	switch {
	case wc.Expect.Error != "" && errors.Is(err, client.ErrRefused):
		return conformance.Verdict{} // an error that ends the reference's thread
	case err != nil || wc.Expect.Error != "":
		return conformance.Differs("error %v, want %q", err, wc.Expect.Error)
	case hit.Tokens != wc.Expect.HitLength:
		return conformance.Differs("hit %d, want %d", hit.Tokens, wc.Expect.HitLength)
	case stat.BackendErrors+stat.BackendTimeouts+stat.BackendRejected > 0:
		return conformance.Differs("the store failed: %+v", stat)
	}
	return conformance.Verdict{}
}

// serve starts a hitline server over c, and returns a client of the server.
func serve(t *testing.T, pool coordinator.Pool, c *Client, remote lookup.RemoteConfig) (*server.Server, *client.Client, func()) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: c, Remote: remote})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{
		Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, srv.Start(contextWithin(t, testTimeout)))
	cl, err := client.Dial(contextWithin(t, testTimeout), srv.Addrs()[0], client.WithTimeout(testTimeout))
	require.NoError(t, err)
	return srv, cl, func() {
		cl.Close()
		_ = srv.Shutdown(contextWithin(t, testTimeout))
	}
}

// objectHasLease is the error of a removal of a block that is leased.
const objectHasLease = -706

// masterLease checks that Exists leases a block, and no other block.
func masterLease(t *testing.T, c *Client, n *storetest.Node) {
	n.Put("asked", "not asked")
	answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"asked"}, false)
	require.NoError(t, err)
	require.Equal(t, []int{1}, answers)
	require.Equal(t, objectHasLease, n.Remove("asked"))
	require.Zero(t, n.Remove("not asked"))
	eventually(t, "the lease ends", func() bool { return n.Remove("asked") == 0 })
}

// masterManyKeys asks in several requests and with wide counts.
func masterManyKeys(t *testing.T, c *Client, n *storetest.Node) {
	keys, put := make([]string, maxRequestKeys+maxRequestKeys/2), []string{}
	want := make([]int, len(keys))
	for i := range keys {
		keys[i] = string(coordinatorKey(t, i))
		if i%5 == 0 {
			put, want[i] = append(put, keys[i]), 1
		}
	}
	n.Put(put...)
	for _, count := range []int{1, 255, 256, 257, len(keys)} {
		answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList(keys[:count]), false)
		require.NoError(t, err)
		require.Equal(t, want[:count], answers)
	}
	start := time.Now()
	const rounds = 20
	for range rounds {
		_, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList(keys[:512]), false)
		require.NoError(t, err)
	}
	t.Logf("512 keys: %v", time.Since(start)/rounds)
}

// firstKey returns the key of a block of group 0 on its first rank.
func firstKey(coord *coordinator.Coordinator, hash []byte) string {
	return coord.KeyPrefix(0, coord.Ranks(0)[0]) + hex.EncodeToString(hash)
}

func coordinatorKey(t *testing.T, i int) []byte {
	coord, err := coordinator.New(coordinator.Pool{ModelName: "many"})
	require.NoError(t, err)
	return []byte(firstKey(coord, conformance.Hash("many", i, 32)))
}

// masterNodeDies kills the process whose memory has the blocks.
func masterNodeDies(t *testing.T, c *Client, n *storetest.Node) {
	n.Put("block")
	n.Kill()
	start := time.Now()
	eventually(t, "the master has noticed", func() bool {
		answers, err := c.Exists(contextWithin(t, testTimeout), backend.KeyList{"block"}, false)
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		return answers[0] == 0
	})
	t.Logf("gone after %v", time.Since(start).Round(time.Millisecond))
}

// prompt is a lookup of which only the first blocks are stored.
type prompt struct {
	pool            coordinator.Pool
	keys            []string // of the blocks to put
	blob            []byte
	tokens, wantHit uint32
}

func newPrompt(t *testing.T, name string) prompt {
	p := prompt{pool: coordinator.Pool{ModelName: name}}
	coord, err := coordinator.New(p.pool)
	require.NoError(t, err)
	const blocks, present = 64, 40
	for i := range blocks {
		hash := conformance.Hash(name, i, 32)
		p.blob = append(p.blob, hash...)
		if i < present {
			p.keys = append(p.keys, firstKey(coord, hash))
		}
	}
	p.tokens, p.wantHit = uint32(blocks*coord.Alignment()), uint32(present*coord.Alignment())
	return p
}

// lookup returns the hit of the prompt in tokens, and the time of the lookup.
func (p prompt) lookup(t *testing.T, cl *client.Client) (uint32, time.Duration) {
	start := time.Now()
	hit, err := cl.Lookup(contextWithin(t, testTimeout), int64(p.tokens), coordinator.NewHashes(p.blob, 32))
	require.NoError(t, err)
	return uint32(hit.Tokens), time.Since(start)
}

// maxLookupTime bounds the time of a lookup. Its deadline is much earlier, but the machine may
// be busy.
const maxLookupTime = testTimeout / 2

// stopped reports whether all threads of a process have stopped.
func stopped(t *testing.T, pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	for _, name := range stats {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(stats) > 0
}

// masterFreezes stops the master's process: its connections stay open and it does not answer.
func masterFreezes(t *testing.T, c *Client, n *storetest.Node, m *storetest.Master) {
	p := newPrompt(t, "frozen")
	n.Put(p.keys...)
	srv, cl, stop := serve(t, p.pool, c, lookup.RemoteConfig{Timeout: 100 * time.Millisecond})
	defer stop()
	eventually(t, "the answer is right", func() bool { hit, _ := p.lookup(t, cl); return hit == p.wantHit })
	require.NoError(t, m.Cmd.Process.Signal(syscall.SIGSTOP))
	defer m.Cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "the master has stopped", func() bool { return stopped(t, m.Cmd.Process.Pid) })
	failures := func() int64 { stat := srv.Stat(); return stat.BackendTimeouts + stat.BackendErrors }
	before, lookups := failures(), int64(0)
	for ; srv.Stat().BackendState != "open"; lookups++ {
		hit, took := p.lookup(t, cl)
		require.Zero(t, hit)
		require.Less(t, took, maxLookupTime)
	}
	require.EqualValues(t, lookups, failures()-before)
	require.GreaterOrEqual(t, lookups, int64(5), "those that waited for long enough")
	require.NoError(t, m.Cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "it is right again", func() bool { hit, _ := p.lookup(t, cl); return hit == p.wantHit })
}

// TestMasterKilled kills the master under load and starts another one.
func TestMasterKilled(t *testing.T) {
	w := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	m := storetest.StartMaster(t, w, "")
	n := storetest.StartNode(t, w, m)
	c := newClient(t, Config{Masters: []string{m.RPC}})
	p := newPrompt(t, "killed")
	n.Put(p.keys...)
	srv, cl, stop := serve(t, p.pool, c, lookup.RemoteConfig{Timeout: testTimeout / 4})
	defer stop()

	var phase atomic.Int32 // 0: the master runs; 1: it is being killed; 2: it is dead; 3: it runs again
	load := startLoad(t, srv.Addrs()[0], &phase, p)
	load.answered(t, 0)
	phase.Store(1)
	m.Kill()
	load.waitInFlight(t)
	phase.Store(2)
	eventually(t, "the breaker opens", func() bool { return srv.Stat().BackendState == "open" })
	load.answered(t, 2)
	phase.Store(3)
	n.Kill()
	m = storetest.StartMaster(t, w, m.RPC)
	n = storetest.StartNode(t, w, m)
	n.Put(p.keys...)
	start := time.Now()
	eventually(t, "answers are right again", func() bool { hit, _ := p.lookup(t, cl); return hit == p.wantHit })
	t.Logf("right again %v after the restart", time.Since(start).Round(time.Millisecond))
	load.stop()
	stat := srv.Stat()
	require.Equal(t, "closed", stat.BackendState)
	require.Positive(t, stat.BackendErrors+stat.BackendTimeouts, "stat says why there was none")
	require.Positive(t, stat.BackendRejected)
	require.Zero(t, stat.RequestsRefused, "none is refused")
	for _, phase := range []int{0, 2, 3} {
		require.Positive(t, load.answers[phase].Load(), "phase %d", phase)
	}
	t.Logf("lookups %d with the master, %d as it went, %d without, %d as it came back; the slowest of all %v",
		load.answers[0].Load(), load.answers[1].Load(), load.answers[2].Load(), load.answers[3].Load(), time.Duration(load.slowest.Load()))
	require.Less(t, time.Duration(load.slowest.Load()), maxLookupTime)
}

// load sends lookups from several clients until stop.
type load struct {
	answers [4]atomic.Int64 // by phase
	all     [4]atomic.Int64 // answers in any phase, by client
	slowest atomic.Int64
	stop    func()
}

// answered waits for more answers of a phase.
func (l *load) answered(t *testing.T, phase int) {
	before := l.answers[phase].Load()
	eventually(t, "lookups are answered", func() bool { return l.answers[phase].Load() > before+100 })
}

// waitInFlight waits until the lookups in flight have ended, so that later answers are about
// the present state of the master.
func (l *load) waitInFlight(t *testing.T) {
	for i := range l.all {
		before := l.all[i].Load()
		eventually(t, "each client is answered twice", func() bool { return l.all[i].Load() >= before+2 })
	}
}

func startLoad(t *testing.T, addr string, phase *atomic.Int32, p prompt) *load {
	l := &load{}
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	l.stop = sync.OnceFunc(func() { cancel(); clients.Wait() })
	t.Cleanup(l.stop)
	for i := range l.all {
		cl, err := client.Dial(contextWithin(t, testTimeout), addr, client.WithTimeout(testTimeout))
		require.NoError(t, err)
		clients.Go(func() {
			defer cl.Close()
			for ctx.Err() == nil {
				before, start := phase.Load(), time.Now()
				hit, err := cl.Lookup(context.Background(), int64(p.tokens), coordinator.NewHashes(p.blob, 32))
				took, after := time.Since(start), phase.Load()
				for slowest := l.slowest.Load(); int64(took) > slowest && !l.slowest.CompareAndSwap(slowest, int64(took)); {
					slowest = l.slowest.Load()
				}
				l.all[i].Add(1)
				if before != after {
					continue
				}
				l.answers[after].Add(1)
				if err != nil || after == 0 && uint32(hit.Tokens) != p.wantHit || after == 2 && hit.Tokens != 0 || hit.Tokens != 0 && uint32(hit.Tokens) != p.wantHit {
					t.Errorf("phase %d: hit %d, %v", after, hit.Tokens, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return l
}
