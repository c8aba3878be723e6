package lookup

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/netproto"
)

// coalescer lets lookups that ask the same at the same time ask the backend once: a
// scheduler that polls, or the ranks of an engine. The first of them leads and asks,
// those that come meanwhile follow. Each waits no longer than its own deadline, and
// asks again itself if it has time left when the leader's has run out.
//
// Followers may get an answer from up to one lookup's timeout before they asked, but
// never from before a change that this service has confirmed: see invalidate.
type coalescer struct {
	mu       sync.Mutex
	inflight map[coalesceKey]*inflightLookup
	shared   atomic.Int64 // lookups that had the answer to another
}

// coalesceKey tells lookups apart, but for hashes that are no chain: the last one of a
// chain names all of it. All bytes are compared before a lookup follows another.
type coalesceKey struct {
	numTokens         int64
	hashLen, numBytes int
	last              [netproto.MaxHashLen]byte
}

// inflightLookup is one lookup that leads, and those that follow.
type inflightLookup struct {
	hashes     []byte // the leader's; not to be read any more once readers is 0
	readers    sync.WaitGroup
	done       chan struct{} // closed when the outcome is there
	outcome    outcome
	followers  int                // under coalescer.mu
	leaderGone bool               // the leader has gone; under coalescer.mu
	cancel     context.CancelFunc // ends the calls of the backend
}

// outcome is what a lookup came to.
type outcome struct {
	hit   int64
	err   error // of the rules
	ended bool  // its time was up, or it was cancelled
}

// Followers is how many lookups wait for the answer to an equal one.
func (r *Remote) Followers() (n int) {
	r.coalescer.mu.Lock()
	defer r.coalescer.mu.Unlock()
	for _, a := range r.coalescer.inflight {
		n += a.followers
	}
	return n
}

func keyOf(numTokens int64, hashes netproto.Hashes) coalesceKey {
	k := coalesceKey{numTokens: numTokens, hashLen: hashes.HashLen(), numBytes: len(hashes.Bytes())}
	if n := hashes.Len(); n > 0 {
		copy(k.last[:], hashes.At(n-1))
	}
	return k
}

// do returns the outcome of ask, its own or that of an equal lookup under way. ctx
// ends with the deadline of this lookup, or is cancelled when nobody waits for it;
// what others follow goes on nevertheless.
func (s *coalescer) do(ctx context.Context, numTokens int64, hashes netproto.Hashes, ask func(ctx context.Context) outcome) outcome {
	key := keyOf(numTokens, hashes)
	for ctx.Err() == nil {
		s.mu.Lock()
		a := s.inflight[key]
		if a == nil {
			a = &inflightLookup{hashes: hashes.Bytes(), done: make(chan struct{})}
			if s.inflight == nil {
				s.inflight = map[coalesceKey]*inflightLookup{}
			}
			s.inflight[key] = a
			s.mu.Unlock()
			return s.lead(ctx, key, a, ask)
		}
		a.readers.Add(1)
		a.followers++
		s.mu.Unlock()
		same := bytes.Equal(a.hashes, hashes.Bytes())
		a.readers.Done()
		if !same {
			s.leave(a)
			return ask(ctx)
		}
		select {
		case <-a.done:
			if !a.outcome.ended {
				s.shared.Add(1)
				return a.outcome
			}
		case <-ctx.Done():
			s.leave(a)
		}
	}
	return ask(ctx) // which only takes note that it is too late
}

// lead asks and publishes the outcome.
func (s *coalescer) lead(ctx context.Context, key coalesceKey, a *inflightLookup, ask func(ctx context.Context) outcome) outcome {
	call := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		call, a.cancel = context.WithDeadline(call, deadline)
	} else {
		call, a.cancel = context.WithCancel(call)
	}
	a.outcome.ended = true // if ask should panic
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) { // at the deadline call ends by itself
			s.abandon(a)
		}
	})
	defer func() {
		stop()
		a.cancel()
		s.mu.Lock()
		if s.inflight[key] == a {
			delete(s.inflight, key)
		}
		s.mu.Unlock()
		a.readers.Wait()
		close(a.done)
	}()
	a.outcome = ask(call)
	return a.outcome
}

// abandon records that nobody waits for the leader. The calls end if nobody follows.
func (s *coalescer) abandon(a *inflightLookup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.leaderGone = true
	if a.followers == 0 {
		a.cancel()
	}
}

// leave takes a follower away.
func (s *coalescer) leave(a *inflightLookup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.followers--
	if a.followers == 0 && a.leaderGone {
		a.cancel()
	}
}

// invalidate keeps lookups from following those under way, for what is stored has
// changed since they began.
func (s *coalescer) invalidate() {
	s.mu.Lock()
	clear(s.inflight)
	s.mu.Unlock()
}
