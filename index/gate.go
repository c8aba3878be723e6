package index

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// gate is the lock between readers and the moment in which a writer shows them what has
// changed. A reader enters in one of several stripes, each on cache lines of its own, so that
// lookups on different cores write to no line that both use. The writer closes the gate and
// waits until no stripe has a reader; a reader that finds it closed leaves again and waits.
//
// # Memory order
//
// Go's atomics are sequentially consistent. A reader adds itself to its stripe and then loads
// closed; the writer stores closed and then loads the stripes. So of two that come at the same
// time at least one sees the other. What the writer has changed happens before the store
// that opens the gate, and that before the load by which a reader passes; what the reader has
// read happens before the subtraction by which it leaves, and that before the load by which
// the writer finds the stripe empty. The race detector follows these operations.
type gate struct {
	stripes []readerStripe
	// pool has a stripe for each processor that has made a lookup lately.
	pool sync.Pool

	_      cacheLine
	closed atomic.Bool // a writer is inside or waits for readers
	parked atomic.Bool // the writer sleeps until a reader leaves
	_      cacheLine

	left   chan struct{} // capacity 1; wakes the writer. A late token only makes a later writer look once more
	writer sync.Mutex    // held by the writer, and for a moment by a reader that has waited long
	issued atomic.Uint32 // stripes given out by pool
}

// cacheLine keeps what lies before it off the lines of what lies after it: two lines of
// 64 bytes, as processors fetch them in pairs.
type cacheLine [128]byte

// readerStripe is a stripe of a gate, and the uses that its lookups have queued.
type readerStripe struct {
	inside  atomic.Int32 // lookups that read
	touchMu sync.Mutex   // guards touches; taken after writing and mu
	touches []stretch    // found by lookups, not yet applied
	_       cacheLine
}

const (
	// stripesPerProcessor makes it rare that two processors use one stripe: each takes one at
	// its first lookup, and another one if it has made none for some garbage collections.
	stripesPerProcessor = 2
	// maxStripes bounds the stripes that a writer waits for.
	maxStripes = 64
	// gateTries is how often a reader or writer looks again before it sleeps, some 20
	// microseconds in all: putting a goroutine to sleep and waking it takes ten times as long
	// as most waits.
	gateTries = 500
	// gatePause is how many iterations of an empty loop lie between two looks, some 40 nanoseconds.
	gatePause = 100
)

// init opens a gate with stripes for the processors that Go may use.
func (g *gate) init() {
	n := min(stripesPerProcessor*runtime.GOMAXPROCS(0), maxStripes)
	g.stripes = make([]readerStripe, n+1)[1:] // the first only pads what lies in front
	g.left = make(chan struct{}, 1)
	g.pool.New = func() any { return &g.stripes[int(g.issued.Add(1))%len(g.stripes)] }
}

// RLock enters for reading and returns the stripe, for RUnlock.
func (g *gate) RLock() *readerStripe {
	r := g.pool.Get().(*readerStripe)
	g.enter(r)
	return r
}

// RUnlock leaves. Others may use the stripe then.
func (g *gate) RUnlock(r *readerStripe) {
	g.leave(r)
	g.pool.Put(r)
}

// pass leaves and enters again, so that a writer that waits comes in between.
func (g *gate) pass(r *readerStripe) {
	g.leave(r)
	g.enter(r)
}

func (g *gate) enter(r *readerStripe) {
	if r.inside.Add(1); g.closed.Load() {
		g.enterSlow(r)
	}
}

// leave takes a reader out of its stripe.
func (g *gate) leave(r *readerStripe) {
	if r.inside.Add(-1) == 0 && g.parked.Load() {
		select {
		case g.left <- struct{}{}:
		default:
		}
	}
}

// enterSlow enters once the gate is open. It is open while we hold the lock of writers.
func (g *gate) enterSlow(r *readerStripe) {
	g.leave(r)
	for range gateTries {
		if pause(); g.closed.Load() {
			continue
		}
		if r.inside.Add(1); !g.closed.Load() {
			return
		}
		g.leave(r)
	}
	g.writer.Lock()
	r.inside.Add(1)
	g.writer.Unlock()
}

// Lock keeps readers out. closed is set by Swap: QEMU 7.2, which runs arm64 on x86-64, lets a Load pass
// a Store before it, and a reader would be inside with the writer.
func (g *gate) Lock() {
	g.writer.Lock()
	g.closed.Swap(true)
	for i := range g.stripes {
		g.awaitEmpty(&g.stripes[i])
	}
}

// awaitEmpty waits until a stripe has no reader.
func (g *gate) awaitEmpty(r *readerStripe) {
	for range gateTries {
		if r.inside.Load() == 0 {
			return
		}
		pause()
	}
	g.parked.Swap(true) // as in Lock
	for r.inside.Load() != 0 {
		<-g.left
	}
	g.parked.Store(false)
}

// Unlock lets readers in.
func (g *gate) Unlock() {
	g.closed.Store(false)
	g.writer.Unlock()
}

// pause does nothing for gatePause steps.
//
//go:noinline
func pause() {
	for range gatePause {
		continue
	}
}
