package lookup

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// lookupMode is what a lookup over a store asks.
type lookupMode uint8

const (
	modeAsk        lookupMode = iota // what is not remembered
	modePeek                         // likewise, but nobody is about to load it: the store leases nothing if it can
	modeRemembered                   // nothing: an event loop may wait for it
)

// LookupOptions are those of a lookup over a store.
type LookupOptions struct {
	// Expected is how many hashes from the start of the lookup on are of blocks that the store is likely to have:
	// these are asked for at once.
	Expected int
	// Deadline is when the lookup ends. Default RemoteConfig.Timeout from now on.
	Deadline time.Time

	mode lookupMode
}

// coalescer lets equal lookups that run at the same time ask the backend once: those of a
// scheduler that polls, or of the ranks of an engine. The first leads and asks, those that
// come meanwhile follow. Each waits no longer than its own deadline. If the leader's time
// runs out first, a follower asks itself.
//
// A follower may get an answer from up to one lookup's timeout before its own begin, but
// never from before a change that this service has confirmed, nor from an older epoch of the store.
type coalescer struct {
	mu       sync.Mutex
	inflight map[coalesceKey]*inflightLookup
}

// coalesceKey tells lookups apart, but for hashes that are no chain: the last hash of a
// chain names all of it. All bytes are compared before a lookup follows another.
type coalesceKey struct {
	epoch             uint64 // of its begin, see PoolBackend.sharingEpoch
	mode              lookupMode
	numTokens, start  int64
	hashLen, numBytes int
	last              [netproto.MaxHashLen]byte
}

// inflightLookup is a lookup that leads, and its followers.
type inflightLookup struct {
	key     coalesceKey
	hashes  []byte         // the leader's; not to be read any more once readers is 0
	readers sync.WaitGroup // followers that compare their hashes
	done    chan struct{}  // closed when the outcome is there
	outcome outcome        // written by the leader before done is closed

	ctx            context.Context // of the lookup: it ends at the deadline, or when nobody waits any more
	cancel         context.CancelFunc
	stopWatching   func() bool // of the caller's context
	followers      int         // under coalescer.mu
	leaderCanceled bool        // under coalescer.mu
}

// outcome is the result of a lookup.
type outcome struct {
	hit        coordinator.Hit // shared by all who get it
	ending     coordinator.Ending
	err        error // of the rules
	incomplete bool  // its time was up, or it was cancelled: others must not use the hit
}

func newCoalesceKey(epoch uint64, numTokens int64, hashes coordinator.Hashes, mode lookupMode) coalesceKey {
	k := coalesceKey{
		epoch: epoch, mode: mode, numTokens: numTokens,
		start: hashes.Start(), hashLen: hashes.HashLen(), numBytes: len(hashes.Bytes()),
	}
	if n := hashes.Len(); n > 0 {
		copy(k.last[:], hashes.At(n-1))
	}
	return k
}

// join waits for the outcome of an equal lookup in flight and returns it as shared. If
// there is none it returns a new leader, which must set outcome and call finish; it asks with
// leader.ctx. It returns neither if the lookup must ask alone: ctx has ended, the deadline has passed, or the
// keys are equal and the hashes are not.
func (c *coalescer) join(
	ctx context.Context, deadline time.Time, key coalesceKey, hashes coordinator.Hashes,
) (leader *inflightLookup, shared *outcome) {
	for ctx.Err() == nil && time.Now().Before(deadline) {
		c.mu.Lock()
		l := c.inflight[key]
		if l == nil {
			l = c.addLeader(ctx, deadline, key, hashes)
			c.mu.Unlock()
			return l, nil
		}
		l.readers.Add(1)
		l.followers++
		c.mu.Unlock()
		equal := bytes.Equal(l.hashes, hashes.Bytes())
		l.readers.Done()
		if !equal {
			c.unfollow(l)
			return nil, nil
		}
		switch {
		case !l.wait(ctx, deadline):
			c.unfollow(l)
		case !l.outcome.incomplete:
			return nil, &l.outcome
		}
	}
	return nil, nil
}

// wait waits for the outcome. It returns false if the deadline passes or ctx ends before.
func (l *inflightLookup) wait(ctx context.Context, deadline time.Time) bool {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case <-l.done:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// addLeader adds a lookup that leads. Its context is cancelled with ctx only if nobody follows. c.mu is held.
func (c *coalescer) addLeader(ctx context.Context, deadline time.Time, key coalesceKey, hashes coordinator.Hashes) *inflightLookup {
	l := &inflightLookup{key: key, hashes: hashes.Bytes(), done: make(chan struct{})}
	l.ctx, l.cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	l.stopWatching = context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) { // at the deadline l.ctx ends by itself
			c.cancelLeader(l)
		}
	})
	if c.inflight == nil {
		c.inflight = map[coalesceKey]*inflightLookup{}
	}
	c.inflight[key] = l
	return l
}

// finish publishes the leader's outcome, and returns when nobody reads its hashes.
func (c *coalescer) finish(l *inflightLookup) {
	l.stopWatching()
	l.cancel()
	c.mu.Lock()
	delete(c.inflight, l.key)
	c.mu.Unlock()
	l.readers.Wait()
	close(l.done)
}

// cancelLeader records that nobody waits for the leader. The calls end if nobody follows.
func (c *coalescer) cancelLeader(l *inflightLookup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.leaderCanceled = true
	if l.followers == 0 {
		l.cancel()
	}
}

// unfollow removes a follower. The calls end if it was the last and the leader is gone.
func (c *coalescer) unfollow(l *inflightLookup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.followers--
	if l.followers == 0 && l.leaderCanceled {
		l.cancel()
	}
}
