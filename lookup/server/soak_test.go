package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
)

// soakTime is how long the soak test takes, without starting and stopping.
func soakTime(t *testing.T) time.Duration {
	text := os.Getenv("HITLINE_TEST_SOAK")
	switch {
	case text == "" && testing.Short():
		return time.Second
	case text == "":
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "HITLINE_TEST_SOAK")
	return d
}

// soakSeed is HITLINE_TEST_SEED, or a new one. It fixes what the workers do, not how their requests interleave.
func soakSeed(t *testing.T) uint64 {
	text := os.Getenv("HITLINE_TEST_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "HITLINE_TEST_SEED")
	return seed
}

// TestSoak has sixteen clients, raw and over ZMTP, by TCP and unix sockets, do everything that a client can do, right and
// wrong, to a server that is killed and restarted under them. It checks every answer, and that memory, goroutines and
// files do not grow. HITLINE_TEST_SOAK is how long.
//
// Each worker stores chains of its own, and knows what is stored of them: see soakChain. Half of the workers share the
// server's own pool. The others have a pool each, which they also reset.
func TestSoak(t *testing.T) {
	seed, total := soakSeed(t), soakTime(t)
	t.Logf("HITLINE_TEST_SEED=%d HITLINE_TEST_SOAK=%v", seed, total)
	full := coordinator.Pool{HashBlockSize: 16, HashLen: 32}
	small := coordinator.Pool{HashBlockSize: 16, HashLen: 20}
	hybrid := coordinator.Pool{HashBlockSize: 16, HashLen: 16, TPSize: 2, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 64},
		{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 33},
		{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 500},
	}}
	pools := map[string]struct {
		pool       coordinator.Pool
		maxEntries int64
	}{"full attention": {full, 0}, "windows on two ranks": {hybrid, 0}, "evicting": {small, 5_000}}
	each := total / time.Duration(len(pools))
	for name, c := range pools {
		t.Run(name, func(t *testing.T) {
			s := newSoak(t, c.pool, c.maxEntries, seed)
			s.start()
			s.work(each/5, false)
			for end := time.Now().Add(lookuptest.Patience); s.counts["lookups that hit"] == 0 && time.Now().Before(end); {
				s.work(each/5, false) // a slow machine has not stored enough
			}
			first := s.settled()
			s.work(each*2/5, false)
			for end := time.Now().Add(lookuptest.Patience); ; time.Sleep(100 * time.Millisecond) { // what is left of the load may take a while to end
				last := s.settled()
				err := last.grownFrom(first)
				if err == nil {
					t.Logf("at rest: %+v, then %+v", first, last)
					break
				}
				require.True(t, time.Now().Before(end), "%v", err)
			}
			s.work(each*2/5, true)
			s.end(false)
			t.Log(s.counts)
			require.Positive(t, s.counts["lookups that hit"])
		})
	}
}

// soak is a server that is killed and started anew at the same addresses, and its clients.
type soak struct {
	t       *testing.T
	cfg     childConfig
	rules   *coordinator.Coordinator
	workers []*soakWorker
	child   *child

	mu     sync.Mutex
	number int           // of the server that runs, or of the next
	up     chan struct{} // closed while it serves
	held   []net.Conn    // connections that were left in the middle of a request
	counts map[string]int
}

func newSoak(t *testing.T, pool coordinator.Pool, maxEntries int64, seed uint64) *soak {
	rules, err := coordinator.New(pool)
	require.NoError(t, err)
	s := &soak{t: t, rules: rules, up: make(chan struct{}), counts: map[string]int{}, cfg: childConfig{
		Listen: []string{"tcp://" + storetest.FreeAddr(t), "ipc://" + t.TempDir() + "/s"},
		Pool:   rules.Pool(), MaxEntries: maxEntries, Limits: Limits{MessageTimeout: 8 * time.Second},
	}}
	for id := range 16 {
		w := &soakWorker{soak: s, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), number: -1}
		if id%2 == 0 {
			w.pool = fmt.Sprint("worker-", id)
		}
		s.workers = append(s.workers, w)
	}
	return s
}

// start starts a server.
func (s *soak) start() {
	s.child = startChild(s.t, s.cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.up)
}

// end ends the server and checks how it took that.
func (s *soak) end(kill bool) {
	s.mu.Lock()
	s.up = make(chan struct{})
	s.number++
	s.mu.Unlock()
	s.release()
	var log string
	if kill {
		require.NoError(s.t, s.child.cmd.Process.Kill())
		_ = s.child.cmd.Wait()
		log = s.child.log.String()
	} else {
		log = s.child.ends(s.t)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			require.Regexp(s.t, soakWarnings, line)
		}
	}
}

// soakWarnings are the lines that peers which do wrong may cause.
var soakWarnings = regexp.MustCompile(`level=WARN msg="(request refused|max_connections lowered.*|the memory index is full and evicts.*)"|` +
	`level=WARN msg="connection closed" reason=(slow_reader|in_flight|memory|message_timeout|bad_flags|command_frame|zmtp_command|bad_first_byte)( |\n)`)

// current returns the number of the server that runs or comes next, and a channel that is closed while it serves.
func (s *soak) current() (number int, up chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number, s.up
}

// serves reports whether nobody has ended a server.
func (s *soak) serves(number int) bool {
	now, _ := s.current()
	return now == number
}

// hold leaves a connection as it is until the server ends, or many more are held.
func (s *soak) hold(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held = append(s.held, c); len(s.held) > 40 {
		_ = s.held[0].Close()
		s.held = s.held[1:]
	}
}

// release closes what is held.
func (s *soak) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.held {
		_ = c.Close()
	}
	s.held = nil
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// work lets the workers work for some time. Meanwhile the server is killed or stopped again and again if restarts is set.
func (s *soak) work(d time.Duration, restarts bool) {
	timed, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	group, ctx := errgroup.WithContext(timed)
	for _, w := range s.workers {
		group.Go(func() error { return w.run(ctx) })
	}
	for n := 0; restarts && (ctx.Err() == nil || n < 2); n++ {
		time.Sleep(time.Duration(50+rand.IntN(450)) * time.Millisecond)
		s.end(n%2 == 0)
		s.start()
	}
	if err := group.Wait(); err != nil {
		_ = s.child.cmd.Process.Kill()
		_ = s.child.cmd.Wait()
		log := s.child.log.Bytes()
		s.t.Fatalf("%v\nserver's log:\n%s", err, log[max(0, len(log)-4000):])
	}
	s.release()
	for _, w := range s.workers {
		w.forget()
	}
}

// soakMemory is what a server at rest takes.
type soakMemory struct{ heap, resident, goroutines, files int }

// grownFrom returns an error if a server takes more than before.
func (m soakMemory) grownFrom(before soakMemory) error {
	// Of pools, stacks, and the queues in which the index keeps what lookups have found: they do not grow with time.
	const heapSlack, residentSlack = mib, 4 * mib
	switch {
	case m.heap > before.heap+before.heap/20+heapSlack,
		!bufpool.Debug && m.resident > before.resident+before.resident/20+residentSlack,
		m.goroutines > before.goroutines+2, // of gnet's pool of workers, which come and go
		m.files > before.files:
		return fmt.Errorf("the server at rest has grown from %+v to %+v", before, m)
	}
	return nil
}

// settled brings the server to where memory can be compared: no connections of workers, empty pools, and in its own pool
// always as many entries. It returns what it takes then.
func (s *soak) settled() (m soakMemory) {
	entries := int64(20_000)
	own := dialSoak(s.t, s.cfg.Listen[0])
	defer own.Close()
	lookuptest.Eventually(s.t, "the workers' connections are closed", func() bool { return statOf(s.t, own).Connections == 1 })
	for _, w := range s.workers {
		if w.pool != "" {
			c := dialSoak(s.t, s.cfg.Listen[0], client.WithPool(w.pool, s.cfg.Pool))
			require.NoError(s.t, c.Reset(s.t.Context()))
			require.NoError(s.t, c.Close())
		}
	}
	hashLen := s.cfg.Pool.HashLen
	fill := coordinator.NewHashes(lookuptest.Chain("fill", int(entries), hashLen), hashLen)
	require.NoError(s.t, errors.Join(own.Reset(s.t.Context()), own.Store(s.t.Context(), coordinator.GroupRank{}, fill)))
	if s.cfg.MaxEntries > 0 {
		entries = s.cfg.MaxEntries
	}
	lookuptest.Eventually(s.t, "it is at rest", func() bool {
		st := statOf(s.t, own)
		return st.Connections == 1 && st.Entries == entries
	})
	m.heap, m.goroutines = s.child.held(s.t)
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		m.resident = s.child.memory(s.t, "VmRSS")
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.child.cmd.Process.Pid))
		require.NoError(s.t, err)
		m.files = len(files)
	}
	return m
}

func dialSoak(t *testing.T, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), addr, append(opts, client.WithTimeout(lookuptest.Patience))...)
	require.NoError(t, err)
	return c
}
