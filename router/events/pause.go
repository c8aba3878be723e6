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

// lockContext locks l, and reports whether it did before ctx ended. A free lock is locked even if ctx has ended.
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

// Pause calls do between two batches of the source: until do returns, the Holder is not called. Pause waits for a batch in
// progress until ctx ends. Then it does not call do, and fails with the error of ctx. Config.Observe and the Holder
// must not call Pause.
func (f *Follower) Pause(ctx context.Context, do func(*Checkpoint)) error {
	if !f.pausing.lockContext(ctx) {
		return ctx.Err()
	}
	defer f.pausing.unlock()
	do(f.tracker.checkpoint(f.cfg.Name))
	return nil
}

// Pause calls do while all sources are between two batches: until do returns, none of their Holders is called. So
// what do sees of several Holders is of one moment. do gets the checkpoints in the order of the names, and may keep them.
// It must not add or end sources, nor wait for one.
//
// Pause waits for batches in progress until ctx ends, while the other sources are paused already. A source that is
// still busy then, or is just being added or ended, is left out: its Holder may change while do runs. Pause
// fails with the error of ctx if another Pause is in progress until then.
func (m *Manager) Pause(ctx context.Context, do func([]*Checkpoint)) error {
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
	do(checkpoints)
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
