package events

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// replaceBatch is a batch that removes a block and stores another one.
func replaceBatch(removed, stored uint64) []byte {
	var events simEvents
	events.event("BlockRemoved", hashesField(removed), mediumField("GPU"), groupField(0))
	events.event("BlockStored", hashesField(stored), parentField(false), mediumField("GPU"), groupField(0))
	return events.batch()
}

// within returns a context for a Pause.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// checkpointOf pauses a source, and returns its checkpoint and a stale copy of its blocks.
func checkpointOf(t *testing.T, f *Follower, s *testSet) (c *Checkpoint, blocks *testSet) {
	t.Helper()
	require.NoError(t, f.Pause(within(t, 30*time.Second), func(now *Checkpoint) { c, blocks = now, cloneSet(t, s) }))
	return recode(t, c), blocks
}

// resumeAt starts a Follower at a checkpoint.
func resumeAt(t *testing.T, cfg Config, c *Checkpoint, blocks *testSet) *Follower {
	t.Helper()
	cfg.Resume = c
	return startFollower(t, cfg, blocks)
}

// While sources are paused nothing changes, and each is at a boundary between two batches. Others go on from there.
func TestManagerPause(t *testing.T) {
	noLeak(t)
	const sources, batches, pauses = 3, 300, 20
	m := newManager(t)
	sets := map[string]*testSet{}
	var publishers []*testPublisher
	for i := range sources {
		p := startPublisher(t)
		publishers = append(publishers, p)
		cfg := p.config()
		cfg.Name = fmt.Sprint("engine-", i)
		require.NoError(t, m.Add(cfg, func(Config) (Holder, error) {
			sets[cfg.Name] = newTestSet()
			return sets[cfg.Name], nil
		}))
		p.publish(storedBatch(0), true)
	}
	for _, set := range sets {
		awaitHeld(t, set, 0)
	}
	for _, p := range publishers {
		p.awaitSubscriber()
	}
	var publishing sync.WaitGroup
	for _, p := range publishers {
		publishing.Go(func() {
			for n := uint64(1); n < batches; n++ {
				p.publish(replaceBatch(n-1, n), n%50 == 0)
			}
		})
	}
	var last []*Checkpoint
	copied := map[string]*testSet{}
	for range pauses {
		require.NoError(t, m.Pause(within(t, 30*time.Second), func(list []*Checkpoint) {
			require.Len(t, list, sources)
			for i, c := range list {
				require.Equal(t, fmt.Sprint("engine-", i), c.Name)
				require.True(t, c.Complete)
				copied[c.Name] = cloneSet(t, sets[c.Name])
				copied[c.Name].SetStale(false)
				require.Equal(t, []uint64{c.NextSeq - 1}, numbers(copied[c.Name]))
			}
			last = list
			for _, c := range list {
				require.Equal(t, 1, sets[c.Name].Len())
			}
		}))
	}
	second := newManager(t)
	for i, c := range last {
		cfg := publishers[i].config()
		cfg.Name, cfg.Resume = c.Name, c
		require.NoError(t, second.Add(cfg, func(Config) (Holder, error) { return copied[c.Name], nil }))
	}
	publishing.Wait()
	for name := range sets {
		awaitHeld(t, sets[name], batches-1)
		awaitHeld(t, copied[name], batches-1)
	}
	for _, s := range second.Sources() {
		require.True(t, s.Complete)
		require.Zero(t, s.Restarts+s.Lost)
	}
}

// blockingHolder is a testSet whose Store can be held up.
type blockingHolder struct {
	*testSet
	entered, leave chan struct{}
}

func (h *blockingHolder) Store(b *Blocks, held []bool) error {
	h.entered <- struct{}{}
	<-h.leave
	return h.testSet.Store(b, held)
}

// A source whose batch takes too long is left out, and the others are paused without it.
func TestPauseLeavesOut(t *testing.T) {
	noLeak(t)
	slow, quick := startPublisher(t), startPublisher(t)
	m := newManager(t)
	holder := &blockingHolder{testSet: newTestSet(), entered: make(chan struct{}), leave: make(chan struct{})}
	cfg := slow.config()
	cfg.Name = "a slow one"
	require.NoError(t, m.Add(cfg, func(Config) (Holder, error) { return holder, nil }))
	set := newTestSet()
	require.NoError(t, m.Add(quick.config(), func(Config) (Holder, error) { return set, nil }))
	slow.publish(storedBatch(1), true)
	<-holder.entered

	numPaused := func(ctx context.Context) (n int) {
		require.NoError(t, m.Pause(ctx, func(list []*Checkpoint) { n = len(list) }))
		return n
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 1, numPaused(ended), "what need not be waited for is paused by an ended context, too")
	require.Equal(t, 1, numPaused(within(t, 20*time.Millisecond)))
	f := m.sources["a slow one"].follower
	require.ErrorIs(t, f.Pause(ended, func(*Checkpoint) { t.Error("called") }), context.Canceled)

	// One Pause at a time.
	require.NoError(t, m.Pause(ended, func([]*Checkpoint) {
		require.ErrorIs(t, m.Pause(ended, func([]*Checkpoint) { t.Error("called") }), context.Canceled)
	}))

	// A batch that ends in time is waited for.
	paused := make(chan int)
	go func() {
		n := -1
		_ = m.Pause(within(t, 30*time.Second), func(list []*Checkpoint) { n = len(list) })
		paused <- n
	}()
	eventually(t, func() bool { return len(m.pausing) == 1 })
	holder.leave <- struct{}{}
	require.Equal(t, 2, <-paused)
	close(holder.leave)
}

// A source that is paused while it is closed ends afterwards. A closed one has a checkpoint as well.
func TestPauseAndClose(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	p.publish(storedBatch(1), true)
	f, set := follow(t, p.config())
	awaitHeld(t, set, 1)
	closed := make(chan struct{})
	require.NoError(t, f.Pause(within(t, 30*time.Second), func(*Checkpoint) {
		go func() {
			defer close(closed)
			f.Close()
		}()
		<-f.ctx.Done()
		require.Equal(t, []uint64{1}, numbers(set), "it does not become stale while it is paused")
	}))
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
	cfg := p.config()
	cfg.Resume = c
	stale, err := NewFollower(cfg, blocks)
	require.NoError(t, err)
	require.True(t, blocks.Stale())
	require.Equal(t, Status{Name: cfg.Name, Endpoint: cfg.Endpoint, State: StateConnecting, Stale: true, Complete: true, Blocks: 2, NextSeq: 3},
		stale.Status())
	require.NoError(t, stale.Start())
	t.Cleanup(stale.Close)
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

// Without a replay socket nobody knows what was missed.
func TestResumeWithoutReplay(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	p.publish(storedBatch(1), true)
	f, set := follow(t, p.config())
	awaitHeld(t, set, 1)
	c, blocks := checkpointOf(t, f, set)
	cfg := p.config()
	cfg.Replay = ""
	second := resumeAt(t, cfg, c, blocks)
	awaitHeld(t, blocks)
	awaitStatus(t, second, func(s Status) bool { return s.Lost == 1 && !s.Complete })
}
