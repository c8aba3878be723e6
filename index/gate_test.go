package index

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// meetAtGate lets readers and writers go through a gate of two stripes, over variables that are
// not atomic. Each of them yields inside now and then, so that others find the gate so.
func meetAtGate(t *testing.T) {
	const readers, writers = 8, 3
	turns := 400
	if testing.Short() || raceEnabled {
		turns = 100
	}
	var g gate
	g.init()
	g.stripes = g.stripes[:2]
	var a, b int // equal while no writer is inside
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range turns {
				g.Lock()
				a++
				if inside.Load() != 0 {
					t.Error("a reader is inside with a writer")
				}
				if (n+i)%8 == 0 {
					runtime.Gosched()
				}
				b++
				g.Unlock()
			}
		})
	}
	for i := range readers {
		wg.Go(func() {
			for n := range turns {
				r := g.RLock()
				for pass := range 2 {
					inside.Add(1)
					before := a
					if (n+i)%8 == 0 {
						runtime.Gosched()
					}
					if before != b {
						t.Error("a reader sees half of a change")
					}
					inside.Add(-1)
					if pass == 0 {
						g.pass(r)
					}
				}
				g.RUnlock(r)
			}
		})
	}
	wg.Wait()
	require.Equal(t, writers*turns, a)
	require.Equal(t, a, b)
	require.False(t, g.closed.Load() || g.parked.Load())
	for i := range g.stripes {
		require.Zero(t, g.stripes[i].inside.Load())
	}
}

func TestGate(t *testing.T) { meetAtGate(t) }

// TestGateOnOneProcessor waits for goroutines that cannot run at the same time.
func TestGateOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	meetAtGate(t)
}

// TestGateStripes uses more stripes than there are processors, and one for all.
func TestGateStripes(t *testing.T) {
	for _, n := range []int{1, maxStripes} {
		var g gate
		g.init()
		g.stripes = make([]readerStripe, n)
		seen := 0 // by the writer
		var wg sync.WaitGroup
		var counts, read [maxStripes + 1]int // each of one reader
		for i := range counts {
			wg.Go(func() {
				r := &g.stripes[i%n]
				for range 20 {
					g.enter(r)
					counts[i]++
					read[i] = seen
					g.leave(r)
				}
			})
		}
		for range 20 {
			g.Lock()
			sum := 0
			for i, c := range counts {
				sum += c
				require.LessOrEqual(t, read[i], seen)
			}
			require.GreaterOrEqual(t, sum, seen)
			seen = sum
			g.Unlock()
		}
		wg.Wait()
		g.Lock()
		for _, c := range counts {
			require.Equal(t, 20, c)
		}
		g.Unlock()
	}
}

// TestGateWriterSleeps keeps a reader inside until the writer sleeps. Others come and go
// meanwhile, and the last to leave its stripe wakes the writer.
func TestGateWriterSleeps(t *testing.T) {
	var g gate
	g.init()
	g.stripes = make([]readerStripe, 3)
	changed := false
	for i := range g.stripes {
		changed = false
		stays := &g.stripes[i]
		g.enter(stays)
		written := make(chan struct{})
		go func() {
			g.Lock()
			changed = true
			g.Unlock()
			close(written)
		}()
		for !g.parked.Load() {
			runtime.Gosched()
		}
		var wg sync.WaitGroup
		for j := range g.stripes {
			wg.Go(func() { // waits for the writer
				r := &g.stripes[j]
				g.enter(r)
				if !changed {
					t.Error("a reader that came later sees an earlier state")
				}
				g.leave(r)
			})
		}
		require.False(t, changed, "a writer does not wait for a reader")
		g.leave(stays)
		<-written
		wg.Wait()
		require.False(t, g.closed.Load() || g.parked.Load())
	}
}
