package lookup

import (
	"context"
	"sync"
)

// crew is a bounded queue of flights and the goroutines that serve it.
type crew struct {
	jobs chan *flight
	done sync.WaitGroup
}

// newCrew starts the goroutines.
func newCrew(ctx context.Context, workers, queue int) *crew {
	c := &crew{jobs: make(chan *flight, queue)}
	for range workers {
		c.done.Go(func() {
			for f := range c.jobs {
				f.fly(ctx)
			}
		})
	}
	return c
}

// submit hands a flight to the crew; false says that the queue is full.
func (c *crew) submit(f *flight) bool {
	select {
	case c.jobs <- f:
		return true
	default:
		return false
	}
}

// stop joins the goroutines when the queue is empty. Nobody may submit any more.
func (c *crew) stop() {
	close(c.jobs)
	c.done.Wait()
}

// crews are a server's two: lookups must not wait for workers that are at slow
// resets or stores.
type crews struct {
	asks, writes *crew
	cancel       context.CancelFunc
}

// startCrews starts what the service's backend needs, nil for the memory index.
func startCrews(s *Service) *crews {
	if s.remote == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := s.remote.cfg
	return &crews{asks: newCrew(ctx, cfg.Workers, cfg.Queue), writes: newCrew(ctx, cfg.WriteWorkers, cfg.Queue), cancel: cancel}
}

// of returns the crew for a flight.
func (c *crews) of(f *flight) *crew {
	if f.changes() {
		return c.writes
	}
	return c.asks
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
