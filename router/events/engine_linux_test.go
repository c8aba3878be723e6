package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// TestEngine follows the event publisher and the cache manager of vLLM, in releases that publish
// arrays and maps, and replay with and without the topic. No block is ever held that the engine
// did not cache, and after a replay all are held again.
func TestEngine(t *testing.T) {
	for _, release := range []string{"0.24.0", "0.28.0", "0.33.0"} {
		engine := storetest.EngineConfig{
			Release: release, Buffer: 10_000, Blocks: 120, Window: 16, Least: 1, Integers: release != "0.28.0",
		}
		t.Run(release, func(t *testing.T) { runScenarios(t, engine, false) })
	}
}

// TestEngineConnects awaits an engine that connects.
func TestEngineConnects(t *testing.T) {
	runScenarios(t, storetest.EngineConfig{Release: "0.33.0", Buffer: 10_000, Blocks: 120, Window: 16, Least: 1}, true)
}

// runScenarios runs each of the scenarios with an engine of its own.
func runScenarios(t *testing.T, engine storetest.EngineConfig, connects bool) {
	for name, scenario := range map[string]func(*stage){
		"requests": (*stage).requests, "cuts": (*stage).cuts, "lost": (*stage).lostMessages, "restarts": (*stage).restarts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{ExactCopies: true}
			if connects {
				cfg.Endpoint, cfg.Bind = "tcp://"+storetest.FreeAddr(t), true
			}
			s := newStage(t, engine, cfg)
			s.run(100, false)
			s.requireEqual()
			scenario(s)
			s.report()
		})
	}
}

// requests computes over 1,000 requests, with copies, evictions and resets.
func (s *stage) requests() {
	for i := range 15 {
		s.run(100, false)
		s.requireEqual()
		if i%4 == 3 {
			s.reset()
			s.requireEqual()
		}
	}
}

// cuts cuts and stalls the connections.
func (s *stage) cuts() {
	before := s.follower.Status()
	for _, p := range []*proxy{s.pub, s.replay} {
		p.cut()
		s.run(50, false)
		s.requireEqual()
	}
	s.pub.refuse(true)
	s.pub.cut()
	s.waitUntil("the cut is not noticed", func(now Status) bool { return now.Stale })
	s.run(50, false)
	s.pub.refuse(false)
	s.requireEqual()
	s.pub.stall(true)
	s.run(50, false)
	s.pub.cut() // what was stalled is lost
	s.pub.stall(false)
	status := s.requireEqual()
	require.GreaterOrEqual(s.t, status.Connects, before.Connects+3)
	require.Equal(s.t, before.Lost, status.Lost)
}

// lostMessages drops messages that can be replayed, and has sends fail, so that batches are
// nowhere.
func (s *stage) lostMessages() {
	before := s.follower.Status()
	first := s.history().next
	s.pub.drop(first+3, first+13)
	s.run(50, false)
	status := s.requireEqual()
	require.Equal(s.t, 10, s.pub.numDropped())
	require.Greater(s.t, status.Gaps, before.Gaps)
	require.Equal(s.t, before.Lost, status.Lost)

	s.run(5, true)
	s.run(10, false)
	require.NotZero(s.t, s.requireSubset(), "the source is complete after a hole")
	require.False(s.t, s.follower.Status().Complete)
	s.reset()
	s.requireEqual()
}

// restarts replaces the engine by others, whose sequences begin at 0.
func (s *stage) restarts() {
	before := s.follower.Status()
	for i, steps := range []int{30, 200} { // batches less and more than before
		s.restart(steps)
		s.waitUntil("the restart is not noticed", func(now Status) bool { return now.Restarts > before.Restarts+int64(i) })
		s.requireEqual()
		s.run(50, false)
		s.requireEqual()
	}
}

// TestEngineFullReports has requests ask for full reports, which name blocks that are cached
// already, and no copies. In a group with a sliding window they also name blocks in front of the
// window that the engine does not cache. Copies of first blocks are then not counted, and blocks
// in front of a window may be left out: a few are lacking, and none is too much.
func TestEngineFullReports(t *testing.T) {
	for _, release := range []string{"0.28.0", "0.33.0"} {
		for _, window := range []int{0, 16} {
			s := newStage(t, storetest.EngineConfig{
				Release: release, Buffer: 10_000, Blocks: 120, Window: window, Full: 0.3, Least: 5, Integers: true, Seed: 1,
			}, Config{})
			missing, cached := 0, 0
			for range 20 {
				s.run(50, false)
				missing += s.requireSubset()
				cached += len(s.history().cached())
			}
			require.Less(t, missing*50, cached, "over 2 of 100 blocks are lacking")
			require.Equal(t, window > 0, s.history().untrue > 0, "what the engine says of blocks that it does not cache")
			s.run(5, true)
			for range 5 {
				s.run(20, false)
				s.requireSubset()
			}
			t.Logf("window %d: of %d blocks %d are not held, %d are said to be stored and are not",
				window, cached, missing, s.history().untrue)
			s.report()
		}
	}
}

// TestEngineRotated loses more batches than the engine keeps for replays.
func TestEngineRotated(t *testing.T) {
	t.Parallel()
	s := newStage(t, storetest.EngineConfig{Release: "0.33.0", Buffer: 8, Blocks: 120, Window: 16, Least: 1}, Config{ExactCopies: true})
	s.run(5, false)
	s.requireEqual()
	s.run(100, false)
	s.pub.refuse(true)
	s.pub.cut()
	s.run(30, false)
	s.pub.refuse(false)
	require.NotZero(t, s.requireSubset())
	status := s.follower.Status()
	require.False(t, status.Complete)
	require.NotZero(t, status.Lost)
	s.run(20, false)
	s.requireSubset()
	s.reset()
	s.run(20, false)
	s.requireEqual()
	s.report()
}

// TestEngineWithoutReplay follows an engine that is not asked for replays.
func TestEngineWithoutReplay(t *testing.T) {
	t.Parallel()
	s := newStage(t, storetest.EngineConfig{Release: "0.28.0", Buffer: 1, Blocks: 120, Least: 1, Integers: true},
		Config{ExactCopies: true, Replay: noReplay})
	s.waitReceived(0)
	for range 3 {
		s.run(50, false)
		s.requireSubset()
		s.reset()
		s.requireEqual()
		s.run(50, false)
		s.requireEqual()
		connects := s.follower.Status().Connects
		s.pub.cut()
		s.waitReceived(connects)
		s.requireSubset()
		require.False(t, s.follower.Status().Complete)
	}
	s.report()
}

// waitReceived waits for a connection after the first connects ones. Then it has the engine do steps until
// the follower has the last batch: a subscription takes effect a moment after it was sent.
func (s *stage) waitReceived(connects int64) {
	s.t.Helper()
	s.waitUntil("no connection", func(now Status) bool { return now.Connects > connects })
	s.waitUntil("the last batch did not come", func(Status) bool {
		s.run(1, false)
		now := s.follower.Status()
		return !now.Stale && now.NextSeq == s.history().next
	})
}

// TestEngineSilence loses the last messages, and stalls a connection without an end of it.
func TestEngineSilence(t *testing.T) {
	t.Parallel()
	s := newStage(t, storetest.EngineConfig{Release: "0.33.0", Buffer: 10_000, Blocks: 120, Window: 16, Least: 1, Integers: true},
		Config{ExactCopies: true, Timeout: 2 * time.Second})
	s.run(50, false)
	s.requireEqual()
	s.pub.drop(0, 1<<62)
	s.run(50, false)
	s.requireEqual()
	require.NotZero(t, s.pub.numDropped())
	s.pub.drop(0, 0)
	s.pub.stall(true)
	s.waitUntil("the stall is not noticed", func(now Status) bool { return now.Stale })
	s.run(50, false)
	s.pub.stall(false)
	s.requireEqual()
	s.report()
}
