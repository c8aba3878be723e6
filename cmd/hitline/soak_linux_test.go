package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
)

// TestSoakStores asks a server over memory, over a real Redis, and over a real Mooncake master, and checks every answer,
// while the store is killed, hangs and is emptied, the server is reloaded, replaced, killed and put to its bound of
// memory, and clients stop reading. HITLINE_TEST_SOAK is how long.
//
// While nothing is broken an answer is exactly what is stored. While something is, it is at most that. A server that is
// replaced is not broken: see soak_observers_linux_test.go for who else looks on.
func TestSoakStores(t *testing.T) {
	text := os.Getenv("HITLINE_TEST_SOAK")
	if text == "" {
		t.Skip("HITLINE_TEST_SOAK says how long")
	}
	total, err := time.ParseDuration(text)
	require.NoError(t, err)
	t.Run("memory", func(t *testing.T) { soakStore(t, soakIndex{}, total/3) })
	t.Run("redis", func(t *testing.T) { soakStore(t, &soakRedis{storetest.StartRedis(t)}, total/3) })
	t.Run("mooncake", func(t *testing.T) {
		m := &soakMooncake{t: t, env: storetest.RequireMooncake(t, storetest.MooncakeRelease)}
		m.start(t)
		soakStore(t, m, total/3)
	})
}

// soakBackend is what blocks are stored in.
type soakBackend interface {
	config() string
	put(t *testing.T, c *client.Client, prefix coordinator.Hashes) error
}

// soakProcess is a store that can be broken.
type soakProcess interface {
	kill()
	start(t *testing.T) // empty, after kill
	signal(s syscall.Signal)
}

// soakIndex is the server's own memory, which is gone with it.
type soakIndex struct{}

func (soakIndex) config() string { return "{memory: {}}" }

func (soakIndex) put(t *testing.T, c *client.Client, prefix coordinator.Hashes) error {
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Timeout)
	defer cancel()
	return c.Store(ctx, coordinator.GroupRank{}, prefix)
}

type soakRedis struct{ server *storetest.Redis }

func (r *soakRedis) config() string {
	return "{redis: {url: 'redis://" + r.server.Addr + "', timeout: 5s}}"
}

func (r *soakRedis) put(t *testing.T, c *client.Client, prefix coordinator.Hashes) error {
	return soakIndex{}.put(t, c, prefix)
}

func (r *soakRedis) kill()                   { r.server.Stop() }
func (r *soakRedis) start(t *testing.T)      { r.server.Start(t) }
func (r *soakRedis) signal(s syscall.Signal) { _ = syscall.Kill(r.server.PID, s) }

type soakMooncake struct {
	t      *testing.T
	env    *storetest.MooncakeEnv
	master *storetest.Master
	node   *storetest.Node
}

func (m *soakMooncake) config() string {
	return "{mooncake: {masters: ['" + m.master.RPC + "'], allow_reset: true, timeout: 5s}}"
}

func (m *soakMooncake) put(_ *testing.T, _ *client.Client, prefix coordinator.Hashes) error {
	keys := make([]string, 0, prefix.Len())
	for _, hash := range prefix.All() {
		keys = append(keys, "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"+hex.EncodeToString(hash))
	}
	m.node.Put(keys...)
	return nil
}

func (m *soakMooncake) kill() {
	m.node.Kill()
	m.master.Kill()
}

func (m *soakMooncake) start(t *testing.T) {
	rpc := ""
	if m.master != nil {
		rpc = m.master.RPC
	}
	m.master = storetest.StartMaster(t, m.env, rpc, "--client_ttl=60") // a busy machine delays the node
	m.node = storetest.StartNode(t, m.env, m.master)
}

func (m *soakMooncake) signal(s syscall.Signal) { _ = m.master.Cmd.Process.Signal(s) }

const (
	soakBlock    = 16
	soakChains   = 24
	soakLength   = 200
	soakClients  = 6
	soakPatience = time.Minute // until all is well after a fault
)

// soakChain is a prompt's hashes of 32 bytes, joined, of which the first are stored.
type soakChain struct {
	blob   []byte
	stored int
}

func (c *soakChain) first(n int) coordinator.Hashes { return coordinator.NewHashes(c.blob[:n*32], 32) }

// soakTest is one server over one store. Whoever holds mu for reading asks; whoever holds it alone stores or breaks.
type soakTest struct {
	*testing.T
	store   soakBackend
	file    string
	address string
	metrics string
	server  *exec.Cmd
	client  *client.Client
	rng     *rand.Rand

	mu     sync.RWMutex
	calm   bool
	chains []*soakChain

	asked, exact, wrong atomic.Int64
	faults              map[string]int
	observers           *soakObservers
}

func soakStore(t *testing.T, store soakBackend, total time.Duration) {
	s := &soakTest{
		T: t, store: store, file: filepath.Join(t.TempDir(), "hitline.yaml"), faults: map[string]int{},
		address: storetest.FreeAddr(t), metrics: storetest.FreeAddr(t), rng: rand.New(rand.NewPCG(rand.Uint64(), 1)),
	}
	s.observers = newSoakObservers(s)
	s.configure(10)
	s.serve()
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	var err error
	s.client, err = client.Dial(t.Context(), "tcp://"+s.address, client.WithTimeout(storetest.Timeout))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.client.Close() })
	s.fill()
	s.recover()

	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range soakClients {
		asking.Go(func() { s.ask(ctx) })
	}
	s.observers.start(ctx, &asking)
	end := time.Now().Add(total)
	s.breakAll(time.Now().Add(total/5), 1, s.gentle())
	first := s.atRest()
	s.breakAll(end.Add(-total/5), 1, s.gentle())
	last := s.atRest()
	all := append(s.gentle(), s.restarts()...)
	s.breakAll(end, len(all), all)
	stop()
	asking.Wait()
	final, fresh := s.atRest(), s.freshAtRest()
	t.Logf("%d lookups, %d of them compared exactly, %d wrong; %v; faults %v; at rest first %v, last %v, at the end %v, a fresh one %v",
		s.asked.Load(), s.exact.Load(), s.wrong.Load(), s.observers, s.faults, first, last, final, fresh)
	require.Zero(t, s.wrong.Load())
	last.requireLike(t, first)
	final.requireLike(t, fresh)
}

// requireLike fails if a server at rest takes more than another.
func (r soakRest) requireLike(t *testing.T, other soakRest) {
	require.Less(t, r.rss, other.rss+other.rss/4+32<<20, "memory has grown: %v, then %v", other, r)
	require.LessOrEqual(t, r.goroutines, other.goroutines+8, "%v, then %v", other, r)
}

// freshAtRest returns what a new server takes after it was asked for all chains.
func (s *soakTest) freshAtRest() soakRest {
	s.alone(func() {
		s.end(syscall.SIGTERM)
		s.serve()
	})
	s.recover()
	return s.atRest()
}

// configure writes the configuration, with another drain_timeout each time, so that a reload changes something.
func (s *soakTest) configure(drain int) {
	text := fmt.Sprintf("listen: ['tcp://%s']\nmetrics: %s\ndrain_timeout: %ds\npool: {vllm: '0.33.0', model_name: m}\n"+
		"limits: {max_memory: 64MiB}\nlog: {level: error}\nbackend: %s\n%s", s.address, s.metrics, drain, s.store.config(), s.observers.config())
	require.NoError(s, os.WriteFile(s.file, []byte(text), 0o600))
}

// serve starts a server. Nobody else uses the account of the last one.
func (s *soakTest) serve() {
	if s.store == soakBackend(soakIndex{}) {
		s.forgetStored()
	}
	s.observers.accounted.Store(0)
	s.server = programIn(s.T, ":", "serve", "--config", s.file)
	s.server.Stderr = os.Stderr
	s.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s, s.server.Start())
	storetest.Eventually(s, "the server listens", func() bool {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func (s *soakTest) end(signal syscall.Signal) {
	_ = s.server.Process.Signal(signal)
	_ = s.server.Wait()
}

// forgetStored says that nothing is stored any more: what was must hit nothing until it is stored again.
func (s *soakTest) forgetStored() {
	for _, c := range s.chains {
		c.stored = 0
	}
}

// fill makes new chains and stores parts of them. The caller holds mu alone, or nobody asks yet.
func (s *soakTest) fill() {
	s.chains = nil
	for range soakChains {
		blob := make([]byte, soakLength*32)
		for i := range blob {
			blob[i] = byte(s.rng.Uint32())
		}
		s.chains = append(s.chains, &soakChain{blob: blob})
	}
}

// grow stores more of some chains.
func (s *soakTest) grow() {
	for range soakChains / 3 {
		c := s.chains[s.rng.IntN(len(s.chains))]
		more := min(c.stored+1+s.rng.IntN(40), soakLength)
		require.NoError(s, s.store.put(s.T, s.client, c.first(more)))
		c.stored = more
	}
}

// recover waits until a stored block is hit, and says that all is well.
func (s *soakTest) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for end := time.Now().Add(soakPatience); ; time.Sleep(20 * time.Millisecond) {
		err := s.answersAll()
		if err == nil {
			break
		}
		require.True(s, time.Now().Before(end), "not well again after %v: %v", soakPatience, err)
	}
	s.calm = true
}

// answersAll stores some, and returns which lookup of all chains is not exact.
func (s *soakTest) answersAll() error {
	if s.chains[0].stored == 0 {
		if err := s.store.put(s.T, s.client, s.chains[0].first(1)); err != nil {
			return err
		}
		s.chains[0].stored = 1
	}
	for _, c := range s.chains {
		hit, err := s.lookup(c, soakLength)
		if err != nil {
			return err
		}
		if hit != c.stored {
			return fmt.Errorf("%d blocks are stored, and the hit is %d", c.stored, hit)
		}
	}
	return nil
}

func (s *soakTest) lookup(c *soakChain, blocks int) (int, error) {
	ctx, cancel := context.WithTimeout(s.Context(), storetest.Timeout)
	defer cancel()
	hit, err := s.client.Lookup(ctx, int64(blocks)*soakBlock+1, c.first(blocks))
	return int(hit.Tokens) / soakBlock, err
}

// ask looks up until ctx ends.
func (s *soakTest) ask(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.RLock()
		c, blocks := s.chains[rand.IntN(len(s.chains))], 1+rand.IntN(soakLength)
		hit, err := s.lookup(c, blocks)
		want := min(c.stored, blocks)
		s.asked.Add(1)
		if s.calm {
			s.exact.Add(1)
		}
		if hit > want || s.calm && (err != nil || hit != want) {
			s.wrong.Add(1)
			s.Errorf("%d blocks of %d are stored, and the hit is %d: %v", want, blocks, hit, err)
		}
		s.mu.RUnlock()
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	}
}

type soakFault struct {
	name string
	do   func()
}

// breakAll does one fault after the other until end, at least minFaults, and stores in between.
func (s *soakTest) breakAll(end time.Time, minFaults int, faults []soakFault) {
	for n := 0; n < minFaults || time.Now().Before(end); n++ {
		for range 3 {
			time.Sleep(time.Duration(s.rng.IntN(200)) * time.Millisecond)
			s.mu.Lock()
			s.grow()
			s.mu.Unlock()
		}
		fault := faults[n%len(faults)]
		s.faults[fault.name]++
		fault.do()
		if s.wrong.Load() > 20 {
			s.FailNow()
		}
	}
}

// alone runs f while nobody asks, after which the server or the store is broken.
func (s *soakTest) alone(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = false
	f()
}

// gentle returns the faults after which the process of the server is the same.
func (s *soakTest) gentle() []soakFault {
	faults := []soakFault{
		{"reset", func() {
			s.alone(func() {
				ctx, cancel := context.WithTimeout(s.Context(), storetest.Timeout)
				defer cancel()
				require.NoError(s, s.client.Reset(ctx))
				s.fill()
			})
			s.recover()
		}},
		{"reload", func() {
			s.configure(10 + s.rng.IntN(100))
			require.NoError(s, s.server.Process.Signal(syscall.SIGHUP))
		}},
		{"clients that do not read", s.floodUnread},
		{"memory at its bound", s.floodMemory},
	}
	if store, ok := s.store.(soakProcess); ok {
		faults = append(faults, s.ofStore(store)...)
	}
	return faults
}

func (s *soakTest) ofStore(store soakProcess) []soakFault {
	return []soakFault{
		{"store killed", func() {
			s.alone(store.kill)
			time.Sleep(200 * time.Millisecond)
			s.alone(func() {
				store.start(s.T)
				s.forgetStored()
			})
			s.recover()
		}},
		{"store hangs", func() {
			s.alone(func() { store.signal(syscall.SIGSTOP) })
			time.Sleep(300 * time.Millisecond)
			s.alone(func() { store.signal(syscall.SIGCONT) })
			s.recover()
		}},
	}
}

// restarts returns the faults that end the server.
func (s *soakTest) restarts() []soakFault {
	killed := func() {
		s.alone(func() {
			s.end(syscall.SIGKILL)
			s.serve()
		})
		s.recover()
	}
	stopped := func() {
		s.alone(func() {
			s.observers.checkAccount()
			s.end(syscall.SIGTERM)
			s.serve()
		})
		s.recover()
	}
	if s.store == soakBackend(soakIndex{}) {
		return []soakFault{{"server killed", killed}, {"server stopped", stopped}}
	}
	return []soakFault{{"server killed", killed}, {"server stopped", stopped}, {"server replaced", func() {
		s.observers.accounting.Lock() // others go on, and lose nothing
		defer s.observers.accounting.Unlock()
		s.end(syscall.SIGTERM)
		s.serve()
	}}}
}

// floodUnread has clients send requests and read no reply, while others go on.
func (s *soakTest) floodUnread() {
	for range 8 {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(s, err)
		s.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = io.WriteString(conn, strings.Repeat("\x00\x04stat", 5000))
		defer conn.Close()
	}
	time.Sleep(300 * time.Millisecond)
}

// floodMemory sends lookups that are never ended, until the server holds as many bytes as it may.
func (s *soakTest) floodMemory() {
	for range 16 {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(s, err)
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "\x01\x07explain\x01\x04\x00\x7f\xff\xff\x01\x02\x00\x20\x02\x00\x00\x00\x00\x01\x00\x00\x00")
		_, _ = conn.Write(make([]byte, 8<<20))
		defer conn.Close()
	}
}

type soakRest struct{ rss, goroutines int }

func (r soakRest) String() string {
	return fmt.Sprintf("%.1f MiB, %d goroutines", float64(r.rss)/(1<<20), r.goroutines)
}

// atRest returns what the server takes while nobody asks.
func (s *soakTest) atRest() (found soakRest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(time.Second)
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", s.server.Process.Pid))
	require.NoError(s, err)
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if kib, isRSS := strings.CutPrefix(lines.Text(), "VmRSS:"); isRSS {
			found.rss, err = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
			require.NoError(s, err)
			found.rss <<= 10
		}
	}
	reply, err := http.Get("http://" + s.metrics + "/metrics")
	require.NoError(s, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(s, err)
	number := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindSubmatch(text)
	require.NotNil(s, number)
	found.goroutines, err = strconv.Atoi(string(number[1]))
	require.NoError(s, err)
	return found
}
