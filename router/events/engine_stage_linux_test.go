package events

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// engineTimeout bounds each wait for the follower. It is far more than it needs.
const engineTimeout = 60 * time.Second

type blockKey struct {
	group int
	hash  string
}

func (k blockKey) String() string { return fmt.Sprintf("%d:%s", k.group, k.hash) }

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
	untrue   int                   // blocks that a batch said are stored, but were not cached after it
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
		for _, b := range s.Stored {
			key := blockKey{b.Group, b.Hash}
			if v := h.versions[key]; len(v) == 0 || v[len(v)-1].copies == 0 {
				h.untrue++
			}
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

// watchedSet is a testSet that can be looked at while it is filled.
type watchedSet struct {
	mu  sync.Mutex
	set *testSet
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

// sample is what was held while the follower's next sequence number was between two. end is the
// first after them, when that is known.
type sample struct {
	from, to, end uint64
	held          map[blockKey]bool
}

// noReplay is the Config.Replay of a source that is not asked for replays.
const noReplay = "none"

// stage is an engine, proxies in front of it, and a follower.
type stage struct {
	t              testing.TB
	cfg            storetest.EngineConfig
	engine         *storetest.Engine
	dir            string // of its sockets
	pub, replay    *proxy
	follower       *Follower
	set            *watchedSet
	histories      []*history // of each process of the engine
	compared       int        // checkpoints
	sampled, total int        // samples that held blocks, and blocks of them

	mu      sync.Mutex
	samples []sample
}

// newStage starts all. The engine binds, unless the follower does.
// noReplay is in place of follower.Replay.
func newStage(t testing.TB, engine storetest.EngineConfig, follower Config) *stage {
	t.Helper()
	s := &stage{t: t, cfg: engine, set: &watchedSet{set: newTestSet()}}
	s.pub, s.replay = newProxy(t), newProxy(t)
	if follower.Bind {
		s.pub.forwardTo("tcp", strings.TrimPrefix(follower.Endpoint, "tcp://"))
		s.cfg.Endpoint = s.pub.endpoint()
	} else {
		follower.Endpoint = s.pub.endpoint()
	}
	if follower.Replay == noReplay {
		follower.Replay = ""
	} else {
		follower.Replay = s.replay.endpoint()
	}
	s.start()
	s.switchProxies()
	follower.Name = "engine"
	s.follow(follower)
	return s
}

// start starts a process of the engine. Its requests are others than those of earlier ones.
func (s *stage) start() {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "ev") // paths of sockets are short
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir = dir
	cfg := s.cfg
	cfg.Seed += int64(len(s.histories))
	cfg.Replay = "ipc://" + filepath.Join(dir, "replay")
	if cfg.Endpoint == "" {
		cfg.Endpoint = "ipc://" + filepath.Join(dir, "pub")
	}
	s.engine = storetest.StartEngine(s.t, cfg)
	s.histories = append(s.histories, newHistory())
}

// switchProxies has the proxies forward to the engine.
func (s *stage) switchProxies() {
	s.replay.forwardTo("unix", filepath.Join(s.dir, "replay"))
	if s.cfg.Endpoint == "" {
		s.pub.forwardTo("unix", filepath.Join(s.dir, "pub"))
	}
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
	if from > to {
		return // the engine restarted in between
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, sample{from: from, to: to, held: held})
}

// verify verifies the samples so far: all that was held, one process of the engine had cached
// when it had sent the batches up to there. A batch is applied before it is counted, and its
// number is known when it is counted: samples of batches that are not counted yet stay.
func (s *stage) verify() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.follower.Status().NextSeq
	pending := len(s.samples)
	for i := len(s.samples) - 1; i >= 0; i-- {
		now := &s.samples[i]
		if i+1 < len(s.samples) && s.samples[i+1].to != now.to {
			next = s.samples[i+1].to
		}
		if next == now.to && next != s.history().next {
			pending = i
			continue
		}
		now.end = max(next, now.to+1)
	}
	for _, sample := range s.samples[:pending] {
		s.verifySample(sample)
	}
	s.samples = s.samples[pending:]
}

func (s *stage) verifySample(now sample) {
	s.t.Helper()
	s.sampled++
	s.total += len(now.held)
	var unknown []blockKey
	for _, h := range s.histories {
		if unknown = tooMuch(h, now); len(unknown) == 0 {
			return
		}
	}
	require.Empty(s.t, unknown, "held too much at %d of %d", now.to, s.history().next)
}

// tooMuch returns the blocks of a sample that an engine did not cache then.
func tooMuch(h *history, s sample) (found []blockKey) {
	for key := range s.held {
		if !h.had(key, s.from-min(s.from, 1), s.end) {
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

// restart replaces the engine by another one, at the same endpoints, that has done steps.
func (s *stage) restart(steps int) {
	s.t.Helper()
	old := s.engine
	s.start()
	s.run(steps, false)
	s.switchProxies()
	s.pub.cut()
	old.Kill()
}

// waitSettled waits until the follower has caught up, and returns its state.
func (s *stage) waitSettled() Status {
	s.t.Helper()
	var status Status
	s.waitUntil(fmt.Sprintf("not at batch %d", s.history().next), func(now Status) bool {
		status = now
		return !now.Stale && now.NextSeq == s.history().next
	})
	s.verify()
	return status
}

// waitUntil waits until the follower's state is as wanted.
func (s *stage) waitUntil(what string, wanted func(Status) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(engineTimeout); !wanted(s.follower.Status()); time.Sleep(time.Millisecond) {
		require.True(s.t, time.Now().Before(deadline), "%s: %+v", what, s.follower.Status())
	}
}

// requireEqual waits until the follower has caught up: it holds what the engine caches.
func (s *stage) requireEqual() Status {
	s.t.Helper()
	status := s.waitSettled()
	missing, extra := s.compare()
	require.Empty(s.t, extra, "held, but not cached: %+v", status)
	require.Empty(s.t, missing, "cached, but not held: %+v", status)
	require.True(s.t, status.Complete, "%+v", status)
	return status
}

// requireSubset waits until the follower has caught up: it holds nothing else than the engine caches.
// It returns how many blocks it lacks.
func (s *stage) requireSubset() int {
	s.t.Helper()
	status := s.waitSettled()
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
	if s.cfg.Full == 0 {
		require.Zero(s.t, s.history().untrue)
	}
	s.t.Logf("%d checkpoints, %d samples of %d blocks; %+v", s.compared, s.sampled, s.total, s.follower.Status())
}
