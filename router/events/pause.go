package events

import "context"

// Pause keeps the source between two batches until Unpause: the Holder is not called. So what several Holders have can
// be copied at one moment. Pause waits for a batch in progress until ctx ends, then it fails with the error of ctx; a
// source that is not busy is paused by an ended context, too. Config.Observe and the Holder must not call Pause.
func (f *Follower) Pause(ctx context.Context) (*Checkpoint, error) {
	if !f.pausing.TryAcquire(1) { // also if ctx has ended
		if err := f.pausing.Acquire(ctx, 1); err != nil {
			return nil, err
		}
	}
	return f.tracker.checkpoint(f.cfg.Name), nil
}

// Unpause ends Pause.
func (f *Follower) Unpause() { f.pausing.Release(1) }
