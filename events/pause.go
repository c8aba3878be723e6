package events

import (
	"cmp"
	"context"
	"slices"
)

// pauseLock is a mutex that can be waited for until a context ends. Those who wait get it in their order.
type pauseLock chan struct{}

func newPauseLock() pauseLock { return make(pauseLock, 1) }

func (l pauseLock) lock()   { l <- struct{}{} }
func (l pauseLock) unlock() { <-l }

// tryLock locks l if it is free.
func (l pauseLock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

// lockContext locks l, also if it is free when ctx has ended. It reports whether it did.
func (l pauseLock) lockContext(ctx context.Context) bool {
	if l.tryLock() {
		return true
	}
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pause calls f between two batches of the source: until f returns, its Holder is not called. A batch in
// progress is waited for until ctx ends; then f is not called, and Pause fails with the error of ctx. Config.Observe
// and the Holder must not call it.
func (f *Follower) Pause(ctx context.Context, call func(*Checkpoint)) error {
	if !f.pausing.lockContext(ctx) {
		return ctx.Err()
	}
	defer f.pausing.unlock()
	call(f.tracker.checkpoint(f.cfg.Name))
	return nil
}

// Pause calls f while all sources are between two batches: until it returns, none of their Holders is called. So
// what f sees of several Holders is of one moment. f gets their checkpoints by name, and may keep them. f must not
// add or end sources, nor wait for one.
//
// Batches in progress are waited for until ctx ends, while the other sources are paused already. A source that is
// still busy then, or is just being added or ended, is left out: its Holder may change while f runs. Pause
// fails with the error of ctx if another Pause is in progress until then.
func (m *Manager) Pause(ctx context.Context, f func([]*Checkpoint)) error {
	if !m.pausing.lockContext(ctx) {
		return ctx.Err()
	}
	defer m.pausing.unlock()
	paused := pauseAll(ctx, m.followers())
	defer func() {
		for _, p := range paused {
			p.pausing.unlock()
		}
	}()
	checkpoints := make([]*Checkpoint, len(paused))
	for i, p := range paused {
		checkpoints[i] = p.tracker.checkpoint(p.cfg.Name)
	}
	f(checkpoints)
	return nil
}

// followers returns those of all sources, by name.
func (m *Manager) followers() []*Follower {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Follower, 0, len(m.sources))
	for _, s := range m.sources {
		if s.follower != nil {
			list = append(list, s.follower)
		}
	}
	slices.SortFunc(list, func(a, b *Follower) int { return cmp.Compare(a.cfg.Name, b.cfg.Name) })
	return list
}

// pauseAll locks the followers that it can, and returns them in the same order. It first locks those that are free:
// none is paused for longer than the slowest one needs.
func pauseAll(ctx context.Context, all []*Follower) []*Follower {
	locked := make([]bool, len(all))
	for i, f := range all {
		locked[i] = f.pausing.tryLock()
	}
	paused := all[:0]
	for i, f := range all {
		if locked[i] || f.pausing.lockContext(ctx) {
			paused = append(paused, f)
		}
	}
	return paused
}
