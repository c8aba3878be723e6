package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/requesterror"
)

// Follower follows one source. Safe for concurrent use.
//
// One goroutine follows a connection, and applies a batch before it reads the next one: behind a slow Holder the socket's
// buffers become full, then the publisher's queue.
type Follower struct {
	cfg     Config
	tracker *tracker        // changed by update alone, in the goroutine of run
	log     *sourceLog      // of the goroutine of run
	batches share           // of Config.Memory; of the goroutine of run
	cpu     *cpushare.Claim // of the connection; nil: none. Of the goroutine of run
	// pausing is a lock that is held while the tracker or the Holder changes, or while the source is paused.
	pausing *semaphore.Weighted

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	binding *binding // nil if the source connects

	mu       sync.Mutex
	status   Status // after the last update
	refusals refusals
}

// refusals are connections of other publishers that were refused while one was followed.
type refusals struct {
	number int64
	last   string    // what to say of the last
	time   time.Time // of the last
	logged time.Time // when one was logged
}

// Follow follows a source in the background until Close. It fails with fielderror.ErrConfig, with ErrCheckpoint for
// cfg.Resume, or if the endpoint cannot be bound. The holder must be empty, or have the blocks of the moment of
// cfg.Resume.
func Follow(cfg Config, holder Holder) (*Follower, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Follower{cfg: cfg, log: newSourceLog(&cfg), pausing: semaphore.NewWeighted(1), batches: share{of: cfg.Memory.batches}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.tracker = newTracker(holder, &cfg)
	f.tracker.memory = f.newBatchMemory(f.ctx)
	f.tracker.decoder.reserve = f.tracker.memory.decode
	f.tracker.copies.memory.of = cfg.Memory.copies
	if cfg.Resume != nil {
		if err := f.tracker.resume(cfg.Resume); err != nil {
			return nil, err
		}
		f.cfg.Resume = nil // it may be large
	}
	f.tracker.stopped = f.yield
	f.tracker.pause = func() func() { return f.cpu.Pause() }
	f.status = *f.tracker.status()
	f.tracker.publish = f.publish
	if cfg.Bind {
		var err error
		if f.binding, err = bind(cfg.Endpoint, f.refused); err != nil {
			f.tracker.copies.reset()
			return nil, err
		}
	}
	f.running.Go(f.run)
	return f, nil
}

// Close stops and waits for all goroutines. After it the Holder is not called any more, and is
// stale. Close may be called more than once.
func (f *Follower) Close() {
	f.cancel()
	f.running.Wait()
	if f.binding != nil {
		f.binding.close()
	}
}

// Status returns the state of the source.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Errors += f.refusals.number
	if f.refusals.time.After(s.LastErrorTime) {
		s.LastError, s.LastErrorTime = f.refusals.last, f.refusals.time
	}
	return s
}

// yield lets others compute between two parts of a batch. It fails if the Follower is closed.
func (f *Follower) yield() error {
	if f.cpu != nil {
		f.cpu.Yield() // false: the next read fails
	}
	return f.ctx.Err()
}

// release releases the processor before a wait. The next yield or read acquires it.
func (f *Follower) release() {
	if f.cpu != nil {
		f.cpu.Release()
	}
}

// update changes the tracker, and with it the Holder, once the source is not paused. Then it publishes the status. After
// an error it does not: run updates again at the end of the connection.
func (f *Follower) update(change func(*tracker) error) error {
	if !f.pausing.TryAcquire(1) {
		f.release() // who pauses may need the processor
		_ = f.pausing.Acquire(context.Background(), 1)
	}
	stats := f.tracker.stats
	before, warned := *stats, f.tracker.warning()
	err := requesterror.Call(func() error { return change(f.tracker) })
	if errors.Is(err, requesterror.ErrFault) { // what it holds may be changed in part
		_ = requesterror.Run(func() { f.tracker.lose(err.Error()) })
	}
	f.tracker.status()
	if stats.Batches > before.Batches {
		stats.LastEvent = time.Now()
	}
	if stats.Lost > before.Lost || stats.Restarts > before.Restarts {
		stats.LastErrorTime = time.Now()
	}
	warning := f.tracker.warning()
	if warning != "" && warning != warned {
		stats.Errors++
		stats.LastError, stats.LastErrorTime = warning, time.Now()
		f.log.warn(warning)
	}
	if !stats.Stale && stats.Complete && warning == "" {
		stats.LastError, stats.LastErrorTime = "", time.Time{} // it was overcome
	}
	now := *stats // a checkpoint changes it
	f.pausing.Release(1)
	if err != nil {
		return err
	}
	if f.ctx.Err() == nil {
		f.log.changed(&now, f.tracker.reason)
	}
	f.publish(&now)
	return nil
}

// publish sets what Status returns.
func (f *Follower) publish(now *Status) {
	f.mu.Lock()
	before := &f.status
	isOther := before.Stale != now.Stale || before.Complete != now.Complete || (before.Blocks == 0) != (now.Blocks == 0)
	f.status = *now
	f.mu.Unlock()
	if f.cfg.Changed != nil && isOther {
		f.cfg.Changed()
	}
}

// refused counts a connection of another publisher, unless there is none: then the connection came
// during a pause. A line a minute says so, as a publisher tries again all the time.
func (f *Follower) refused(from net.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.State == StateConnecting {
		return
	}
	r := &f.refusals
	r.number++
	r.last = fmt.Sprintf("refused another publisher, from %v: a source takes one at a time", from)
	r.time = time.Now()
	if r.time.Sub(r.logged) >= logEvery {
		r.logged = r.time
		f.log.log.Warn("events: refused another publisher: a source takes one at a time", "from", from.String())
	}
}
