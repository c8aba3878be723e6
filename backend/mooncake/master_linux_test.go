package mooncake

import (
	"context"
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

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// moreReleases returns those to try as well, named by HITLINE_TEST_MOONCAKE_RELEASES.
// Up to v0.3.11, whose arguments have the other form, a master's admin port cannot
// be bound to loopback; so these run in a network of their own:
//
//	unshare -n sh -c 'ip link set lo up; HITLINE_TEST_MOONCAKE_RELEASES=0.3.11.post1 go test -v -run TestReleases ./backend/mooncake'
func moreReleases() []string {
	return strings.FieldsFunc(os.Getenv("HITLINE_TEST_MOONCAKE_RELEASES"), func(c rune) bool { return c == ',' })
}

// TestReleases runs real masters.
func TestReleases(t *testing.T) {
	for _, release := range append(moreReleases(), storetest.MooncakeRelease) {
		form := FormTenant
		if storetest.Tenantless(release) {
			form = FormKeys
		}
		t.Run(release, func(t *testing.T) {
			w := storetest.NeedWheel(t, release)
			m := storetest.StartMaster(t, w, "")
			n := storetest.StartNode(t, w, m)
			c := newClient(t, Config{Masters: []string{m.RPC}, AllowReset: true})
			info, err := c.Info(within(t, patience))
			require.NoError(t, err)
			require.Equal(t, form, info.Form)
			require.NotEmpty(t, info.Version)
			t.Logf("%+v", info)

			n.Put("a", "c")
			keys := []string{"a", "b", "c", "d"}
			answers, err := c.Exists(within(t, patience), keys)
			require.NoError(t, err)
			require.Equal(t, []int{1, 0, 1, 0}, answers)
			require.Equal(t, answers, n.Exist(keys...))
			require.NoError(t, c.Reset(within(t, patience)), "leased keys too")
			answers, err = c.Exists(within(t, patience), keys)
			require.NoError(t, err)
			require.Equal(t, []int{0, 0, 0, 0}, answers)

			wrong := newClient(t, Config{Masters: []string{m.Admin}})
			_, err = wrong.Info(within(t, patience))
			require.ErrorContains(t, err, "it speaks HTTP, as the admin port does")
		})
	}
}

// TestMaster runs what follows over one real master.
func TestMaster(t *testing.T) {
	w := storetest.NeedWheel(t, storetest.MooncakeRelease)
	m := storetest.StartMaster(t, w, "")
	n := storetest.StartNode(t, w, m)
	c := newClient(t, Config{Masters: []string{m.RPC}})
	t.Run("conformance", func(t *testing.T) { masterConformance(t, c, n) })
	t.Run("lease", func(t *testing.T) { masterLease(t, c, n) })
	t.Run("many keys", func(t *testing.T) { masterManyKeys(t, c, n) })
	t.Run("freezes", func(t *testing.T) { masterFreezes(t, c, n, m) })
	t.Run("node dies", func(t *testing.T) { masterNodeDies(t, c, n) })
}

// casesOf has one of so many cases of the vectors tried: all 1,130 take longer than a
// run of the tests should.
const casesOf = 3

func everyNth[T any](list []T, n int) (some []T) {
	for i := 0; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}

// masterConformance asks a hitline server over the master what the reference was
// asked.
func masterConformance(t *testing.T, c *Client, n *storetest.Node) {
	for file, revision := range map[string]coordinator.Revision{
		"worker_lookup.json": coordinator.Revision20260620, "later/worker_lookup.json": coordinator.Revision20260817,
	} {
		var vectors struct {
			Cases []*conformance.WorkerCase `json:"cases"`
		}
		conformance.Load(t, file, &vectors)
		cases := slices.DeleteFunc(vectors.Cases, func(c *conformance.WorkerCase) bool { return c.Store != "normal" })
		cases = everyNth(cases, casesOf)
		var keys []string
		for _, wc := range cases { // hashes are made of the case's name: no two cases share a key
			content, err := wc.Content()
			require.NoError(t, err)
			keys = slices.AppendSeq(keys, maps.Keys(content))
		}
		n.Put(keys...)
		t.Logf("%s: %d keys are in the store", file, len(keys))
		report := conformance.NewReport(t, file+" over a Mooncake master")
		for _, wc := range cases {
			report.Add(wc.ID, judge(t, wc, revision, c))
		}
		report.Done()
	}
}

func judge(t *testing.T, wc *conformance.WorkerCase, revision coordinator.Revision, c *Client) conformance.Verdict {
	if wc.TokenLen < 0 || wc.TokenLen >= 1<<32 {
		return conformance.Skipped("cannot be sent")
	}
	pool := coordinator.Pool{}
	require.NoError(t, json.Unmarshal(wc.Raw, &pool))
	pool.Revision = revision
	server, asker, stop := serve(t, pool, c, lookup.RemoteConfig{Timeout: patience})
	defer stop()
	hit, err := asker.Lookup(within(t, patience), wc.TokenLen, netproto.NewHashes(wc.Blob(), wc.HashLen))
	stat := server.Stat()
	switch {
	case wc.Expect.Error != "" && errors.Is(err, client.ErrRefused):
		return conformance.Verdict{} // what ends the reference's thread
	case err != nil || wc.Expect.Error != "":
		return conformance.Differs("error %v, want %q", err, wc.Expect.Error)
	case hit.Tokens != wc.Expect.HitLength:
		return conformance.Differs("hit %d, want %d", hit.Tokens, wc.Expect.HitLength)
	case stat.BackendErrors+stat.BackendTimeouts+stat.BackendRejected > 0:
		return conformance.Differs("the store failed: %+v", stat)
	}
	return conformance.Verdict{}
}

// serve starts a hitline server over the client, and a client of its own.
func serve(t *testing.T, pool coordinator.Pool, c *Client, remote lookup.RemoteConfig) (*server.Server, *client.Client, func()) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: c, Remote: remote})
	require.NoError(t, err)
	server, err := server.New(service, server.Config{
		Listen: []string{"tcp://127.0.0.1:0"}, Loops: 1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, server.Start(within(t, patience)))
	client, err := client.Dial(within(t, patience), server.Addrs()[0], client.WithTimeout(patience))
	require.NoError(t, err)
	return server, client, func() {
		client.Close()
		_ = server.Shutdown(within(t, patience))
	}
}

// masterLease shows that asking protects a block, and only a block that was asked
// for.
func masterLease(t *testing.T, c *Client, n *storetest.Node) {
	n.Put("asked", "not asked")
	answers, err := c.Exists(within(t, patience), []string{"asked"})
	require.NoError(t, err)
	require.Equal(t, []int{1}, answers)
	const objectHasLease = -706
	require.Equal(t, objectHasLease, n.Remove("asked"))
	require.Zero(t, n.Remove("not asked"))
	eventually(t, "the lease ends", func() bool { return n.Remove("asked") == 0 })
}

// masterManyKeys asks in parts and with wide counts.
func masterManyKeys(t *testing.T, c *Client, n *storetest.Node) {
	keys, put := make([]string, partKeys+partKeys/2), []string{}
	want := make([]int, len(keys))
	for i := range keys {
		keys[i] = string(coordinatorKey(t, i))
		if i%5 == 0 {
			put, want[i] = append(put, keys[i]), 1
		}
	}
	n.Put(put...)
	for _, count := range []int{1, 255, 256, 257, len(keys)} {
		answers, err := c.Exists(within(t, patience), keys[:count])
		require.NoError(t, err)
		require.Equal(t, want[:count], answers)
	}
	begun := time.Now()
	const rounds = 20
	for range rounds {
		_, err := c.Exists(within(t, patience), keys[:512])
		require.NoError(t, err)
	}
	t.Logf("512 keys: %v", time.Since(begun)/rounds)
}

func coordinatorKey(t *testing.T, i int) []byte {
	coord, err := coordinator.New(coordinator.Pool{ModelName: "many"})
	require.NoError(t, err)
	return coord.AppendKey(nil, 0, 0, conformance.Hash("many", i, 32))
}

// masterNodeDies kills the process in whose memory the blocks are.
func masterNodeDies(t *testing.T, c *Client, n *storetest.Node) {
	n.Put("block")
	n.Kill()
	begun := time.Now()
	eventually(t, "the master has noticed", func() bool {
		answers, err := c.Exists(within(t, patience), []string{"block"})
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		return answers[0] == 0
	})
	t.Logf("gone after %v", time.Since(begun).Round(time.Millisecond))
}

// prompt is a lookup of which the store holds the first blocks only.
type prompt struct {
	pool          coordinator.Pool
	keys          []string // of the blocks to put
	blob          []byte
	tokens, right uint32
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
			p.keys = append(p.keys, string(coord.AppendKey(nil, 0, 0, hash)))
		}
	}
	p.tokens, p.right = uint32(blocks*coord.Alignment()), uint32(present*coord.Alignment())
	return p
}

// asked returns the hit that the client is told, and how long that took.
func (p prompt) asked(t *testing.T, client *client.Client) (uint32, time.Duration) {
	begun := time.Now()
	hit, err := client.Lookup(within(t, patience), int64(p.tokens), netproto.NewHashes(p.blob, 32))
	require.NoError(t, err)
	return uint32(hit.Tokens), time.Since(begun)
}

// limit bounds a lookup whose deadline is much sooner, on a machine that is busy with
// other things.
const limit = patience / 2

// stopped tells whether all threads of a process have stopped.
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

// masterFreezes stops the master's process, so that its connections stay open and
// nobody answers.
func masterFreezes(t *testing.T, c *Client, n *storetest.Node, m *storetest.Master) {
	p := newPrompt(t, "frozen")
	n.Put(p.keys...)
	server, client, stop := serve(t, p.pool, c, lookup.RemoteConfig{Timeout: 100 * time.Millisecond})
	defer stop()
	eventually(t, "the answer is right", func() bool { hit, _ := p.asked(t, client); return hit == p.right })
	require.NoError(t, m.Cmd.Process.Signal(syscall.SIGSTOP))
	defer m.Cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "the master has stopped", func() bool { return stopped(t, m.Cmd.Process.Pid) })
	failures := func() int64 { stat := server.Stat(); return stat.BackendTimeouts + stat.BackendErrors }
	before, asked := failures(), int64(0)
	for ; server.Stat().BackendState != "open"; asked++ {
		hit, took := p.asked(t, client)
		require.Zero(t, hit)
		require.Less(t, took, limit)
	}
	require.EqualValues(t, asked, failures()-before)
	require.GreaterOrEqual(t, asked, int64(5), "those that waited for long enough")
	require.NoError(t, m.Cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "it is right again", func() bool { hit, _ := p.asked(t, client); return hit == p.right })
}

// TestMasterKilled ends the master under load, and starts it again.
func TestMasterKilled(t *testing.T) {
	w := storetest.NeedWheel(t, storetest.MooncakeRelease)
	m := storetest.StartMaster(t, w, "")
	n := storetest.StartNode(t, w, m)
	c := newClient(t, Config{Masters: []string{m.RPC}})
	p := newPrompt(t, "killed")
	n.Put(p.keys...)
	server, client, stop := serve(t, p.pool, c, lookup.RemoteConfig{Timeout: patience / 4})
	defer stop()

	var phase atomic.Int32 // 0: all is well; 1: it may be gone; 2: it is gone; 3: it is back
	load := startLoad(t, server.Addrs()[0], &phase, p)
	load.answered(t, 0)
	phase.Store(1)
	m.Kill()
	load.forgets(t)
	phase.Store(2)
	eventually(t, "the breaker opens", func() bool { return server.Stat().BackendState == "open" })
	load.answered(t, 2)
	phase.Store(3)
	n.Kill()
	m = storetest.StartMaster(t, w, m.RPC)
	n = storetest.StartNode(t, w, m)
	n.Put(p.keys...)
	begun := time.Now()
	eventually(t, "answers are right again", func() bool { hit, _ := p.asked(t, client); return hit == p.right })
	t.Logf("right again %v after the restart", time.Since(begun).Round(time.Millisecond))
	load.stop()
	stat := server.Stat()
	require.Equal(t, "closed", stat.BackendState)
	require.Positive(t, stat.BackendErrors+stat.BackendTimeouts, "stat says why there was none")
	require.Positive(t, stat.BackendRejected)
	require.Zero(t, stat.Failed, "none is refused")
	for _, phase := range []int{0, 2, 3} {
		require.Positive(t, load.answers[phase].Load(), "phase %d", phase)
	}
	t.Logf("lookups %d with the master, %d as it went, %d without, %d as it came back; the slowest of all %v",
		load.answers[0].Load(), load.answers[1].Load(), load.answers[2].Load(), load.answers[3].Load(), time.Duration(load.slowest.Load()))
	require.Less(t, time.Duration(load.slowest.Load()), limit)
}

// load is lookups without end, from several clients.
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

// forgets waits until the lookups that are under way have ended: then nobody can be
// told any longer what the master answered until now.
func (l *load) forgets(t *testing.T) {
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
		client, err := client.Dial(within(t, patience), addr, client.WithTimeout(patience))
		require.NoError(t, err)
		clients.Go(func() {
			defer client.Close()
			for ctx.Err() == nil {
				before, begun := phase.Load(), time.Now()
				hit, err := client.Lookup(context.Background(), int64(p.tokens), netproto.NewHashes(p.blob, 32))
				took, after := time.Since(begun), phase.Load()
				for slowest := l.slowest.Load(); int64(took) > slowest && !l.slowest.CompareAndSwap(slowest, int64(took)); {
					slowest = l.slowest.Load()
				}
				l.all[i].Add(1)
				if before != after {
					continue
				}
				l.answers[after].Add(1)
				if err != nil || after == 0 && uint32(hit.Tokens) != p.right || after == 2 && hit.Tokens != 0 || hit.Tokens != 0 && uint32(hit.Tokens) != p.right {
					t.Errorf("phase %d: hit %d, %v", after, hit.Tokens, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return l
}
