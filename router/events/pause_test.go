package events

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within returns a context for a Pause.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// checkpointOf pauses a source, and returns its checkpoint and a stale copy of its blocks.
func checkpointOf(t *testing.T, f *Follower, s *testSet) (c *Checkpoint, blocks *testSet) {
	t.Helper()
	c, err := f.Pause(within(t, 30*time.Second))
	require.NoError(t, err)
	defer f.Unpause()
	return recode(t, c), cloneSet(t, s)
}

// resumeAt starts a Follower at a checkpoint.
func resumeAt(t *testing.T, cfg Config, c *Checkpoint, blocks *testSet) *Follower {
	t.Helper()
	cfg.Resume = c
	return startFollower(t, cfg, blocks)
}

// A source that is paused while it is closed ends afterwards. A closed one has a checkpoint as well.
func TestPauseAndClose(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	p.publish(storedBatch(1), true)
	f, set := follow(t, p.config())
	awaitHeld(t, set, 1)
	closed := make(chan struct{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Pause(ended)
	require.NoError(t, err, "it need not wait")
	_, err = f.Pause(ended)
	require.ErrorIs(t, err, context.Canceled)
	go func() {
		defer close(closed)
		f.Close()
	}()
	<-f.ctx.Done()
	require.Equal(t, []uint64{1}, numbers(set), "it does not become stale while it is paused")
	f.Unpause()
	<-closed
	require.True(t, set.Stale())
	c, blocks := checkpointOf(t, f, set)
	resumeAt(t, p.config(), c, blocks)
	awaitHeld(t, blocks, 1)
}

// A source that is resumed catches up with what its engine did meanwhile. Copies are counted as before.
func TestResume(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	f, set := follow(t, p.config())
	p.awaitSubscriber()
	for _, b := range [][]byte{storedBatch(1, 2, 3), storedBatch(1, 2), removedBatch(3)} {
		p.publish(b, false)
	}
	eventually(t, func() bool { return f.Status().Removed == 1 })
	c, blocks := checkpointOf(t, f, set)
	require.EqualValues(t, 3, c.NextSeq)
	again := cloneSet(t, blocks)
	p.publish(removedBatch(1), true)
	p.publish(storedBatch(4), true)

	blocks.SetStale(false) // the Follower knows better
	p.Mute(true)
	stale := resumeAt(t, p.config(), c, blocks)
	require.True(t, blocks.Stale())
	s := stale.Status()
	require.Equal(t, []any{true, true, int64(2), uint64(3)}, []any{s.Stale, s.Complete, s.Blocks, s.NextSeq})
	stale.Close()
	p.Mute(false)
	stale = resumeAt(t, p.config(), c, blocks)
	awaitHeld(t, blocks, 1, 2, 4) // the removal removed a copy
	eventually(t, func() bool { return stale.Status().Batches == 2 })
	require.True(t, stale.Status().Complete)
	p.publish(removedBatch(1, 2, 4), false)
	awaitHeld(t, blocks, 2)
	stale.Close()

	// The same checkpoint once more: its use has not changed it.
	second := resumeAt(t, p.config(), c, again)
	awaitHeld(t, again, 2)
	awaitStatus(t, second, func(s Status) bool { return s.Batches == 3 && s.Complete })
}

// After a restart of the engine, nothing of before is left.
func TestResumeAfterRestart(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	for n := range uint64(3) {
		p.publish(storedBatch(n+1), true)
	}
	f, set := follow(t, p.config())
	awaitHeld(t, set, 1, 2, 3)
	c, blocks := checkpointOf(t, f, set)
	f.Close()
	for _, after := range []struct {
		name    string
		batches int
	}{{"fewer batches", 1}, {"as many", 3}, {"more", 7}, {"none", 0}} {
		p.restart()
		var want []uint64
		for n := range after.batches {
			p.publish(storedBatch(uint64(10+n)), true)
			want = append(want, uint64(10+n))
		}
		again := cloneSet(t, blocks)
		second := resumeAt(t, p.config(), c, again)
		awaitHeld(t, again, want...)
		s := second.Status()
		require.True(t, s.Complete, after.name)
		require.EqualValues(t, 1, s.Restarts, after.name)
		second.Close()
	}
}
