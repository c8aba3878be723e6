package server

import (
	"context"
	"sync"

	"github.com/hitline/hitline/lookup"
)

// crew is a bounded queue of flights and the goroutines that serve it.
//
// Connections take turns: of each that has flights waiting one is served, then of
// the next, so that a connection that pipelines a thousand lookups keeps another one
// waiting for one of them and not for all. The same is said twice more: no connection
// has all workers at a time, and none fills the queue.
type crew struct {
	queue int // flights that may wait
	share int // workers that may serve one connection at a time

	mu      sync.Mutex
	work    sync.Cond // there is a turn to take, or nothing more comes
	turns   []*line   // lines that have a flight waiting and a worker to spare, each once
	waiting int       // flights in all lines
	closed  bool
	done    sync.WaitGroup
}

// line is the flights of one connection that wait for a crew, under crew.mu.
type line struct {
	flights []*flight
	served  int  // flights with a worker
	listed  bool // in crew.turns
}

// newCrew starts the goroutines.
func newCrew(ctx context.Context, workers, queue int) *crew {
	c := &crew{queue: queue, share: workers - workers/8}
	c.work.L = &c.mu
	for range workers {
		c.done.Go(func() { c.serve(ctx) })
	}
	return c
}

// submit hands a flight to the crew, in a line that is used with no other crew;
// false says that the queue has no room for it. A line may be as long as there is
// room left, so one of them takes at most half of the queue, and n of them leave the
// n+1st part of it to the next that comes.
func (c *crew) submit(l *line, f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.flights) >= c.queue-c.waiting {
		return false
	}
	l.flights = append(l.flights, f)
	c.waiting++
	c.list(l)
	return true
}

// list gives a line its turn if it has use for one. c.mu is held.
func (c *crew) list(l *line) {
	if l.listed || len(l.flights) == 0 || l.served >= c.share {
		return
	}
	l.listed = true
	c.turns = append(c.turns, l)
	c.work.Signal()
}

// serve flies what waits until nothing more comes.
func (c *crew) serve(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.turns) == 0 {
			if c.closed && c.waiting == 0 {
				return
			}
			c.work.Wait()
		}
		l, f := c.take()
		c.mu.Unlock()
		f.fly(ctx)
		c.mu.Lock()
		l.served--
		c.list(l)
	}
}

// take returns the next flight and its line, which goes to the end of the turns.
// c.mu is held.
func (c *crew) take() (*line, *flight) {
	l := c.turns[0]
	c.turns[0] = nil
	c.turns = c.turns[1:]
	f := l.flights[0]
	l.flights[0] = nil
	l.flights = l.flights[1:]
	l.listed = false
	l.served++
	if c.waiting--; c.closed && c.waiting == 0 {
		c.work.Broadcast() // nobody need wait any longer
	}
	c.list(l)
	return l, f
}

// stop joins the goroutines when the queue is empty. Nobody may submit any more.
func (c *crew) stop() {
	c.mu.Lock()
	c.closed = true
	c.work.Broadcast()
	c.mu.Unlock()
	c.done.Wait()
}

// crews are a server's two: lookups must not wait for workers that are at slow
// resets or stores.
type crews struct {
	asks, writes *crew
	cancel       context.CancelFunc
}

// startCrews starts what the service's backend needs, nil for the memory index.
func startCrews(remote *lookup.Remote) *crews {
	if remote == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := remote.Config()
	return &crews{asks: newCrew(ctx, cfg.Workers, cfg.Queue), writes: newCrew(ctx, cfg.WriteWorkers, cfg.Queue), cancel: cancel}
}

// submit hands a flight to the crew for it.
func (c *crews) submit(f *flight) bool {
	if f.changes() {
		return c.writes.submit(&f.session.flights.writes, f)
	}
	return c.asks.submit(&f.session.flights.asks, f)
}

// stop cuts off what is still under way and joins the goroutines.
func (c *crews) stop() {
	if c == nil {
		return
	}
	c.cancel()
	c.asks.stop()
	c.writes.stop()
}
