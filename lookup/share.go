package lookup

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/netproto"
)

// sharing lets lookups that ask the same at the same time ask the backend once: a
// scheduler that polls, or the ranks of an engine. The first of them leads and asks,
// those that come meanwhile follow. Each waits no longer than its own deadline, and
// asks again itself if it has time left when the leader's has run out.
//
// Followers may get an answer from up to one lookup's timeout before they asked, but
// never from before a change that this service has confirmed: see forget.
type sharing struct {
	mu     sync.Mutex
	under  map[shareKey]*asking
	shared atomic.Int64 // lookups that had the answer to another
}

// shareKey tells lookups apart, but for hashes that are no chain: the last one of a
// chain names all of it. All bytes are compared before a lookup follows another.
type shareKey struct {
	numTokens         int64
	hashLen, numBytes int
	last              [netproto.MaxHashLen]byte
}

// asking is one lookup that leads, and those that follow.
type asking struct {
	hashes    []byte // the leader's; not to be read any more once readers is 0
	readers   sync.WaitGroup
	done      chan struct{} // closed when the outcome is there
	outcome   outcome
	followers int                // under sharing.mu
	left      bool               // the leader has gone; under sharing.mu
	cancel    context.CancelFunc // ends the calls of the backend
}

// outcome is what an asking came to.
type outcome struct {
	hit   int64
	err   error // of the rules
	ended bool  // its time was up, or it was cancelled
}

// Followers is how many lookups wait for the answer to an equal one.
func (r *Remote) Followers() (n int) {
	r.sharing.mu.Lock()
	defer r.sharing.mu.Unlock()
	for _, a := range r.sharing.under {
		n += a.followers
	}
	return n
}

func keyOf(numTokens int64, hashes netproto.Hashes) shareKey {
	k := shareKey{numTokens: numTokens, hashLen: hashes.HashLen(), numBytes: len(hashes.Bytes())}
	if n := hashes.Len(); n > 0 {
		copy(k.last[:], hashes.At(n-1))
	}
	return k
}

// do returns the outcome of ask, its own or that of an equal lookup under way. ctx
// ends with the deadline of this lookup, or is cancelled when nobody waits for it;
// what others follow goes on nevertheless.
func (s *sharing) do(ctx context.Context, numTokens int64, hashes netproto.Hashes, ask func(ctx context.Context) outcome) outcome {
	key := keyOf(numTokens, hashes)
	for ctx.Err() == nil {
		s.mu.Lock()
		a := s.under[key]
		if a == nil {
			a = &asking{hashes: hashes.Bytes(), done: make(chan struct{})}
			if s.under == nil {
				s.under = map[shareKey]*asking{}
			}
			s.under[key] = a
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

// lead asks and settles the asking.
func (s *sharing) lead(ctx context.Context, key shareKey, a *asking, ask func(ctx context.Context) outcome) outcome {
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
		if s.under[key] == a {
			delete(s.under, key)
		}
		s.mu.Unlock()
		a.readers.Wait()
		close(a.done)
	}()
	a.outcome = ask(call)
	return a.outcome
}

// abandon notes that nobody waits for the leader. The calls end when nobody follows.
func (s *sharing) abandon(a *asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.left = true
	if a.followers == 0 {
		a.cancel()
	}
}

// leave takes a follower away.
func (s *sharing) leave(a *asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.followers--
	if a.followers == 0 && a.left {
		a.cancel()
	}
}

// forget keeps lookups from following those under way, for what is stored has
// changed since they began.
func (s *sharing) forget() {
	s.mu.Lock()
	clear(s.under)
	s.mu.Unlock()
}
