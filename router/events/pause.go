package events

import "context"

// pauseLock is a mutex that can be waited for until a context ends. Those who wait get it in their order.
type pauseLock chan struct{}

func newPauseLock() pauseLock { return make(pauseLock, 1) }

func (l pauseLock) lock()   { l <- struct{}{} }
func (l pauseLock) unlock() { <-l }

func (l pauseLock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

// Pause keeps the source between two batches until Unpause: the Holder is not called. So what several Holders have can
// be copied at one moment. Pause waits for a batch in progress until ctx ends, then it fails with the error of ctx; a
// source that is not busy is paused by an ended context, too. Config.Observe and the Holder must not call Pause.
func (f *Follower) Pause(ctx context.Context) (*Checkpoint, error) {
	if !f.pausing.tryLock() {
		select {
		case f.pausing <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return f.tracker.checkpoint(f.cfg.Name), nil
}

// Unpause ends Pause.
func (f *Follower) Unpause() { f.pausing.unlock() }
