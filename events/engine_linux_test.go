package events

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// engineReleases publish in all the forms that there are: arrays, maps, and the replay with and
// without the topic.
var engineReleases = []string{"0.24.0", "0.28.0", "0.33.0"}

// engineTimeout bounds each wait for the follower. It is far more than it needs.
const engineTimeout = 60 * time.Second

type blockKey struct {
	group int
	hash  string
}

// version is the number of copies of a block from a sequence number on.
type version struct {
	from   uint64
	copies int
}

// history is what one process of an engine cached, as of each sequence number.
type history struct {
	next     uint64
	versions map[blockKey][]version
	stored   map[blockKey][]uint64 // batches that say so
}

func newHistory() *history {
	return &history{versions: map[blockKey][]version{}, stored: map[blockKey][]uint64{}}
}

// add adds steps of the engine.
func (h *history) add(steps []storetest.EngineStep) {
	for _, s := range steps {
		for _, b := range s.Stored {
			key := blockKey{b.Group, b.Hash}
			h.stored[key] = append(h.stored[key], s.Next-1)
		}
		for _, b := range s.Changes {
			key := blockKey{b.Group, b.Hash}
			h.versions[key] = append(h.versions[key], version{s.Next, b.Copies})
		}
		h.next = s.Next
	}
}

// cached returns the blocks that are cached now.
func (h *history) cached() map[blockKey]bool {
	found := map[blockKey]bool{}
	for key, versions := range h.versions {
		if versions[len(versions)-1].copies > 0 {
			found[key] = true
		}
	}
	return found
}

// had reports whether a block was cached, or said to be stored, between two sequence numbers.
func (h *history) had(key blockKey, from, to uint64) bool {
	for i, v := range h.versions[key] {
		end := uint64(math.MaxUint64)
		if i+1 < len(h.versions[key]) {
			end = h.versions[key][i+1].from
		}
		if v.copies > 0 && v.from <= to && end > from {
			return true
		}
	}
	return slices.ContainsFunc(h.stored[key], func(seq uint64) bool { return from <= seq && seq <= to })
}

// watchedSet is a Set that can be looked at while it is filled.
type watchedSet struct {
	mu  sync.Mutex
	set *Set
}

func (w *watchedSet) Store(b *Blocks, held []bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.set.Store(b, held)
}

func (w *watchedSet) Remove(b *Blocks) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.set.Remove(b)
}

func (w *watchedSet) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set.Clear()
}

func (w *watchedSet) SetStale(stale bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set.SetStale(stale)
}

// held returns the blocks that count as held.
func (w *watchedSet) held() map[blockKey]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[blockKey]bool{}
	if w.set.Stale() {
		return found
	}
	w.set.Each(func(b *Blocks) bool {
		for i := range b.Hashes.Len() {
			found[blockKey{b.Group, hex.EncodeToString(b.Hashes.At(i))}] = true
		}
		return true
	})
	return found
}

// sample is what was held while the follower was between two sequence numbers.
type sample struct {
	from, to uint64
	held     map[blockKey]bool
}

// stage is an engine, proxies in front of it, and a follower.
type stage struct {
	t              testing.TB
	cfg            storetest.EngineConfig
	command        []string // of another program than storetest's
	engine         *storetest.Engine
	pub, replay    *proxy
	follower       *Follower
	set            *watchedSet
	histories      []*history // of each process of the engine
	compared       int        // checkpoints
	sampled, total int        // samples that held blocks, and blocks of them

	mu      sync.Mutex
	samples []sample
}

// newStage starts all. The proxies' connections are those of the follower.
func newStage(t testing.TB, engine storetest.EngineConfig, follower Config, command ...string) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "ev") // paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &stage{t: t, cfg: engine, command: command, set: &watchedSet{set: NewSet(0)}}
	s.cfg.Endpoint = "ipc://" + filepath.Join(dir, "pub")
	s.cfg.Replay = "ipc://" + filepath.Join(dir, "replay")
	s.pub = newProxy(t, "unix", filepath.Join(dir, "pub"))
	s.replay = newProxy(t, "unix", filepath.Join(dir, "replay"))
	s.start()
	follower.Name, follower.Connect, follower.Replay = "engine", s.pub.endpoint(), s.replay.endpoint()
	s.follow(follower)
	return s
}

// start starts a process of the engine. Its requests are others than those of earlier ones.
func (s *stage) start() {
	s.t.Helper()
	s.cfg.Seed++
	if len(s.command) > 0 {
		s.engine = storetest.StartEngineProgram(s.t, s.cfg, s.command...)
	} else {
		s.engine = storetest.StartEngine(s.t, s.cfg)
	}
	s.histories = append(s.histories, newHistory())
}

// follow starts the follower, and takes samples of what it holds.
func (s *stage) follow(cfg Config) {
	s.t.Helper()
	f, err := NewFollower(cfg, s.set)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Start())
	s.follower = f
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				s.sample()
			}
		}
	})
	s.t.Cleanup(func() {
		close(stop)
		wg.Wait()
		f.Close()
		assert.Empty(s.t, s.set.held(), "held after Close")
	})
}

// sample keeps what is held now, for verify.
func (s *stage) sample() {
	from := s.follower.Status().NextSeq
	held := s.set.held()
	to := s.follower.Status().NextSeq
	if from > to || len(held) == 0 {
		return // the engine restarted in between
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, sample{from, to, held})
}

// verify verifies the samples so far: all that was held, one process of the engine had cached
// when it had sent the batches up to there.
func (s *stage) verify() {
	if os.Getenv("NOVERIFY") != "" {
		s.samples = nil
		return
	}
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sample := range s.samples {
		s.sampled++
		s.total += len(sample.held)
		var unknown []blockKey
		for _, h := range s.histories {
			if unknown = tooMuch(h, sample); len(unknown) == 0 {
				break
			}
		}
		require.Empty(s.t, unknown, "held too much at %d of %d", sample.to, s.history().next)
	}
	s.samples = nil
}

// tooMuch returns the blocks of a sample that an engine did not cache then.
func tooMuch(h *history, s sample) (found []blockKey) {
	from := s.from - min(s.from, 1) // a batch may be applied before it is counted, or after
	for key := range s.held {
		if !h.had(key, from, s.to+1) {
			found = append(found, key)
		}
	}
	return found
}

func (s *stage) history() *history { return s.histories[len(s.histories)-1] }

// run has the engine do steps.
func (s *stage) run(steps int, lost bool) {
	s.t.Helper()
	s.history().add(s.engine.Run(steps, lost))
	s.verify()
}

// reset clears the engine's cache.
func (s *stage) reset() {
	s.t.Helper()
	s.history().add(s.engine.Reset())
	s.verify()
}

// restart kills the engine, and starts another at the same endpoints.
func (s *stage) restart() {
	s.t.Helper()
	s.engine.Kill()
	s.start()
}

// settled waits until the follower has caught up, and returns its state.
func (s *stage) settled() Status {
	s.t.Helper()
	var status Status
	for deadline := time.Now().Add(engineTimeout); ; time.Sleep(time.Millisecond) {
		status = s.follower.Status()
		if !status.Stale && status.NextSeq == s.history().next {
			s.verify()
			return status
		}
		require.True(s.t, time.Now().Before(deadline), "the engine is at %d, the follower: %+v", s.history().next, status)
	}
}

// equal waits until the follower has caught up: it holds what the engine caches.
func (s *stage) equal() Status {
	s.t.Helper()
	status := s.settled()
	missing, extra := s.compare()
	require.Empty(s.t, extra, "held, but not cached: %+v", status)
	require.Empty(s.t, missing, "cached, but not held: %+v", status)
	require.True(s.t, status.Complete, "%+v", status)
	return status
}

// within waits until the follower has caught up: it holds nothing else than the engine caches.
// It returns how many blocks it lacks.
func (s *stage) within() int {
	s.t.Helper()
	status := s.settled()
	missing, extra := s.compare()
	require.Empty(s.t, extra, "held, but not cached: %+v", status)
	return len(missing)
}

// compare returns the blocks that are cached but not held, and the reverse.
func (s *stage) compare() (missing, extra []blockKey) {
	s.compared++
	held, cached := s.set.held(), s.history().cached()
	for key := range cached {
		if !held[key] {
			missing = append(missing, key)
		}
	}
	for key := range held {
		if !cached[key] {
			extra = append(extra, key)
		}
	}
	byHash := func(a, b blockKey) int { return cmp.Or(a.group-b.group, cmp.Compare(a.hash, b.hash)) }
	slices.SortFunc(missing, byHash)
	slices.SortFunc(extra, byHash)
	return missing, extra
}

// report logs what was compared.
func (s *stage) report() {
	s.verify()
	s.t.Logf("%d checkpoints, %d samples of %d blocks; %+v", s.compared, s.sampled, s.total, s.follower.Status())
}

// TestEngine follows the event publisher and the cache manager of releases of vLLM: random
// requests, copies, evictions, resets, then cuts, stalls, lost messages and restarts. Never is
// a block held that the engine did not cache, and after a replay all are held again.
func TestEngine(t *testing.T) {
	for _, release := range engineReleases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, storetest.EngineConfig{
				Release: release, Buffer: 10_000, Blocks: 120, Window: 16, Least: 1, Integers: true,
			}, Config{ExactCopies: true, Timeout: 5 * time.Second})
			for range 10 {
				s.run(100, false)
				s.equal()
			}
			s.reset()
			s.equal()
			s.faults()
			s.report()
		})
	}
}

// faults cuts, stalls, drops and restarts.
func (s *stage) faults() {
	s.run(100, false)
	s.equal()
	for _, p := range []*proxy{s.pub, s.replay} {
		p.cut()
		s.run(50, false)
		s.equal()
	}
	before := s.follower.Status()

	s.pub.stall(true)
	s.run(50, false)
	s.pub.cut()
	s.pub.stall(false)
	s.equal()

	first := s.history().next
	s.pub.drop(first+3, first+13)
	s.run(100, false)
	status := s.equal()
	s.t.Logf("dropped %d", s.pub.numDropped())
	require.Greater(s.t, status.Connects, before.Connects)

	s.run(5, true) // permanent holes
	s.run(50, false)
	s.t.Logf("after a hole, of %d blocks %d are not held", len(s.history().cached()), s.within())
	s.reset()
	s.run(50, false)
	s.equal()

	s.pub.refuse(true)
	s.pub.cut()
	s.restart()
	s.run(50, false)
	s.pub.refuse(false)
	s.equal()
	require.Greater(s.t, s.follower.Status().Restarts, before.Restarts)
	s.run(50, false)
	s.equal()
}

func (k blockKey) String() string { return fmt.Sprintf("%d:%s", k.group, k.hash) }

// TestServingEngine is TestEngine with an engine that serves a model. HITLINE_TEST_ENGINE is the
// command that starts it, a JSON array; scripts/e2e sets it.
func TestServingEngine(t *testing.T) {
	text := os.Getenv("HITLINE_TEST_ENGINE")
	if text == "" {
		t.Skip("HITLINE_TEST_ENGINE names no engine: run make e2e")
	}
	var command []string
	require.NoError(t, json.Unmarshal([]byte(text), &command))
	s := newStage(t, storetest.EngineConfig{
		Buffer: 10_000, Blocks: 200, Least: 1, Integers: os.Getenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES") != "0",
	}, Config{ExactCopies: true, Timeout: 5 * time.Second}, command...)
	for range 10 {
		s.run(40, false) // 100 prompts
		s.equal()
	}
	s.faults()
	s.report()
}

func TestTmpFull(t *testing.T) {
	for _, release := range []string{"0.28.0", "0.33.0"} {
		for _, window := range []int{0, 16} {
			for _, exact := range []bool{false, true} {
				for _, full := range []float64{0, 0.3} {
					t.Run(fmt.Sprintf("%s/%d/exact=%t/full=%g", release, window, exact, full), func(t *testing.T) {
						s := newStage(t, storetest.EngineConfig{
							Release: release, Buffer: 10_000, Blocks: 120, Window: window, Least: 5, Full: full, Integers: true,
						}, Config{Timeout: 5 * time.Second, ExactCopies: exact})
						miss, ext, all := 0, 0, 0
						for range 40 {
							s.run(25, false)
							s.settled()
							m, e := s.compare()
							miss += len(m)
							ext += len(e)
							all += len(s.history().cached())
						}
						t.Logf("cached %d missing %d extra %d", all, miss, ext)
						s.report()
					})
				}
			}
		}
	}
}
