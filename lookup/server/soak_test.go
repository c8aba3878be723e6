package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
)

// soakTime is how long all of the soak test takes, without starting and stopping.
func soakTime(t *testing.T) time.Duration {
	if text := os.Getenv("HITLINE_TEST_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("HITLINE_TEST_SOAK: %v", err)
		}
		return d
	}
	if testing.Short() {
		return time.Second
	}
	return 3 * time.Second
}

// soakSeed is HITLINE_TEST_SEED, or one that was never used before. It fixes what
// the workers do, not how their doings interleave.
func soakSeed(t *testing.T) uint64 {
	text := os.Getenv("HITLINE_TEST_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("HITLINE_TEST_SEED: %v", err)
	}
	return seed
}

// TestSoak has sixteen clients, in both dialects, over TCP and unix sockets, do
// everything that a client can do, right and wrong, to a server that is killed and
// restarted under them, and checks every answer. HITLINE_TEST_SOAK is how long.
//
// Each worker stores chains of its own and keeps a model of what is stored of them.
// Whatever it asks, the answer is then known:
//
//   - exactly, by the coordinator's rule over the model (and, for one group of full
//     attention, by counting), while nothing below is the case;
//   - between 0 and the rule over the model, from the moment that a reset of another
//     worker may have come in between until the keys are stored again, and always
//     where the index is bounded: there keys may go at any time;
//   - between the rule over what is certain and over what is possible, for a chain
//     that was to be changed on a connection that the worker itself then cut;
//   - 0, after a reset that has ended, and from a new incarnation of the server.
//
// Wrong is any other answer, or an answer of another form, with another envelope,
// out of order, too many, or too few: each request gets its reply within
// soakPatience, unless the worker cuts its connection, or the server is killed, or
// is stopped and no part of the request was sent before. Wrong is also a server that
// takes more memory, goroutines or files at rest after the faults than before,
// one that does not end well on SIGTERM, and one that logs what these peers do not
// explain.
func TestSoak(t *testing.T) {
	seed, total := soakSeed(t), soakTime(t)
	t.Logf("HITLINE_TEST_SEED=%d HITLINE_TEST_SOAK=%v", seed, total)
	full := coordinator.Pool{HashBlockSize: 16}
	hybrid := coordinator.Pool{HashBlockSize: 16, TPSize: 2, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 64},
		{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 33},
		{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 500},
	}}
	for _, c := range []struct {
		name       string
		pool       coordinator.Pool
		hashLen    int
		maxEntries int64
	}{
		{"full attention", full, 32, 0},
		{"windows on two ranks", hybrid, 16, 0},
		{"evicting", full, 20, 5_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			soak(t, c.pool, c.hashLen, c.maxEntries, seed, total/3)
			for end := time.Now().Add(soakPatience); goleak.Find(before) != nil && time.Now().Before(end); { // it waits itself
			}
			goleak.VerifyNone(t, before)
		})
	}
}

const soakWorkers = 16

func soak(t *testing.T, pool coordinator.Pool, hashLen int, maxEntries int64, seed uint64, total time.Duration) {
	coord, err := coordinator.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	pool = coord.Pool()
	pool.HashLen = hashLen // otherwise the first store decides, which may be one of garbage
	model := &soakPool{coord: coord, groups: pool.Groups, ranks: pool.TPSize, hashLen: hashLen, evicts: maxEntries > 0}
	s := &soakRun{
		server: newSoakServer(soakChild{Listen: []string{"tcp://" + storetest.FreeAddr(t), "ipc://" + t.TempDir() + "/s"}, Pool: pool, MaxEntries: maxEntries}),
		counts: &soakCounts{of: map[string]int{}},
		rng:    rand.New(rand.NewPCG(seed, 1<<32)),
	}
	resets := new(soakResets)
	for id := range soakWorkers {
		s.workers = append(s.workers, newSoakWorker(id, seed, model, s.server, resets, s.counts))
	}
	defer func() {
		s.server.release()
		if s.server.cmd.ProcessState == nil {
			_ = s.server.cmd.Process.Kill()
			_ = s.server.cmd.Wait()
		}
	}()
	err = s.run(total)
	t.Log(s.summary())
	if err != nil {
		t.Fatalf("HITLINE_TEST_SEED=%d: %v\nserver's log:\n%s", seed, err, s.lastLog())
	}
}

// soakRun is one server and its clients.
type soakRun struct {
	server      *soakServer
	workers     []*soakWorker
	counts      *soakCounts
	rng         *rand.Rand
	first, last soakMemory
	longest     time.Duration // of the drains
}

// run warms the server up, measures, goes on with it, measures again, and then
// kills and stops it again and again.
func (s *soakRun) run(total time.Duration) error {
	if err := s.server.start(); err != nil {
		return err
	}
	var err error
	if err = s.work(total/5, nil); err != nil {
		return err
	}
	if s.first, err = s.server.memory(); err != nil {
		return err
	}
	if err = s.work(total*2/5, nil); err != nil {
		return err
	}
	for end := time.Now().Add(soakPatience); ; time.Sleep(100 * time.Millisecond) { // what is left of the load may take a while to end
		if s.last, err = s.server.memory(); err != nil {
			return err
		}
		if err = s.flat(); err == nil {
			break
		}
		if time.Now().After(end) {
			return err
		}
	}
	if err = s.work(total*2/5, s.restarts); err != nil {
		return err
	}
	s.server.release()
	return s.server.end("term", 0)
}

// work lets the workers work for so long, or until what goes on beside them is over. Then all of their
// connections are closed, and their models are as empty as the server will be.
func (s *soakRun) work(d time.Duration, beside func(ctx context.Context) error) error {
	working, stop := context.WithCancel(context.Background())
	defer stop()
	group, ctx := errgroup.WithContext(working)
	timed, cancel := context.WithTimeout(ctx, d) // or until a worker has failed
	defer cancel()
	for _, w := range s.workers {
		group.Go(func() error { return w.run(ctx) })
	}
	group.Go(func() error {
		defer stop()
		if beside != nil {
			return beside(timed)
		}
		<-timed.Done()
		return nil
	})
	err := group.Wait()
	s.server.release()
	for _, w := range s.workers {
		w.forget()
	}
	return err
}

// restarts ends the server and starts it anew, until ctx ends.
func (s *soakRun) restarts(ctx context.Context) error {
	for n := 0; ctx.Err() == nil || n < 3; n++ { // each way once, however short the time
		time.Sleep(time.Duration(50+s.rng.IntN(450)) * time.Millisecond)
		how, stopped := "kill", time.Duration(0)
		switch n % 3 {
		case 1:
			how, stopped = "term", arrivesWithin+time.Duration(40+s.rng.IntN(100))*time.Millisecond
		case 2:
			how = "term"
		}
		begun := time.Now()
		if err := s.server.end(how, stopped); err != nil {
			return err
		}
		if how == "term" {
			s.longest = max(s.longest, time.Since(begun)-stopped)
		}
		s.counts.fault("server: " + map[string]string{"kill": "kill -9", "term": "SIGTERM"}[how])
		if err := s.server.start(); err != nil {
			return err
		}
	}
	return nil
}

// flat compares the memory at rest.
func (s *soakRun) flat() error {
	// Of pools, stacks, and the queues in which the index keeps what lookups have found: they do not grow with time.
	const heapSlack, rssSlack = 576 << 10, 4 << 20
	var err error
	if s.last.Heap > s.first.Heap+s.first.Heap/20+heapSlack {
		err = errors.Join(err, errors.New("the server's heap has grown"))
	}
	if !bufpool.Debug && runtime.GOOS == "linux" && s.last.rss > s.first.rss+s.first.rss/20+rssSlack {
		err = errors.Join(err, errors.New("the server's resident memory has grown"))
	}
	if s.last.Goroutines > s.first.Goroutines+2 { // of gnet's pool of workers, which come and go
		err = errors.Join(err, errors.New("the server has more goroutines"))
	}
	if s.last.files > s.first.files {
		err = errors.Join(err, errors.New("the server has more files open"))
	}
	if err != nil {
		return fmt.Errorf("first %v, last %v: %w", s.first, s.last, err)
	}
	return nil
}

func (s *soakRun) summary() string {
	return fmt.Sprintf("%sat rest, first: %v\n         last:  %v\nlongest drain: %v", s.counts, s.first, s.last, s.longest)
}

// lastLog returns what the server that ran last has logged.
func (s *soakRun) lastLog() string {
	if s.server.cmd.ProcessState == nil {
		_ = s.server.cmd.Process.Kill()
		_ = s.server.cmd.Wait()
	}
	log := s.server.log.String()
	return log[max(0, len(log)-4000):]
}
