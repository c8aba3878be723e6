package lookup

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// keyLease is what a lookup over a backend holds of what all of them share: a CPU token
// for its keys and answers, and memory for its keys. It may wait for the CPU while it
// holds memory, never the other way round. Every wait ends with its context.
type keyLease struct {
	remote     *Remote
	ctx        context.Context
	releaseCPU func()
	memory     *keyBytes // of the keys and answers at hand, nil for none
	late       bool      // the last call failed, or was not made, because ctx has ended
}

// lease takes a CPU token. Whoever has the lease must call end.
func (r *Remote) lease(ctx context.Context) *keyLease {
	return &keyLease{remote: r, ctx: ctx, releaseCPU: r.acquireCPU(ctx)}
}

// Reserve waits for memory, and refuses with ErrTooManyKeys
// a request whose keys alone take more than half of what there is for all requests.
func (l *keyLease) Reserve(bytes int64) error {
	r := l.remote
	l.releaseMemory() // what the round before took
	if most := r.keys.most(); bytes > most {
		r.rejected.Add(1)
		l.late = false
		return fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, most)
	}
	if l.memory = r.keys.tryAcquire(bytes); l.memory != nil {
		return nil
	}
	l.releaseCPU()
	l.releaseCPU = func() {}
	var err error
	if l.memory, err = r.keys.acquire(l.ctx, bytes); err != nil {
		l.late = true
		return r.countLate(err)
	}
	l.releaseCPU = r.acquireCPU(l.ctx)
	return nil
}

// Exists asks the backend, without a CPU token meanwhile.
func (l *keyLease) Exists(keys []string) ([]int, error) {
	l.releaseCPU()
	l.releaseCPU = func() {} // should the backend panic
	answers, err := l.remote.exists(l.ctx, keys, l.memory)
	l.late = err != nil && ended(l.ctx) != nil
	l.releaseCPU = l.remote.acquireCPU(l.ctx)
	return answers, err
}

func (l *keyLease) releaseMemory() {
	l.memory.release()
	l.memory = nil
}

func (l *keyLease) end() {
	l.releaseMemory()
	l.releaseCPU()
}

// keyMemory bounds the memory of the keys that are asked at a time. Small requests have
// a quarter of it, larger ones the rest, and each wait in a queue of their own: a
// request that waits for much memory delays no small one.
type keyMemory struct {
	bytes        int64
	small, large *semaphore.Weighted
}

func newKeyMemory(bytes int64) *keyMemory {
	return &keyMemory{bytes: bytes, small: semaphore.NewWeighted(bytes / 4), large: semaphore.NewWeighted(bytes - bytes/4)}
}

// most is what one request gets at most.
func (m *keyMemory) most() int64 { return m.bytes / 2 }

// smallPart is which part of the memory a small request takes at most. The quarter that
// small requests have then serves eight of the largest of them at a time. By default one
// may have 100,000 keys.
const smallPart = 32

func (m *keyMemory) queue(bytes int64) *semaphore.Weighted {
	if bytes <= m.bytes/smallPart {
		return m.small
	}
	return m.large
}

// tryAcquire is acquire without waiting; it returns nil if there is no memory now.
func (m *keyMemory) tryAcquire(bytes int64) *keyBytes {
	if q := m.queue(bytes); q.TryAcquire(bytes) {
		return newKeyBytes(q, bytes)
	}
	return nil
}

// acquire waits for so many bytes, at most most(), until ctx ends.
func (m *keyMemory) acquire(ctx context.Context, bytes int64) (*keyBytes, error) {
	q := m.queue(bytes)
	if err := q.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	return newKeyBytes(q, bytes), nil
}

// keyBytes is memory that was acquired. The lookup and a call of the backend that goes
// on without it hold it together.
type keyBytes struct {
	queue   *semaphore.Weighted
	bytes   int64
	holders atomic.Int32
}

func newKeyBytes(queue *semaphore.Weighted, bytes int64) *keyBytes {
	b := &keyBytes{queue: queue, bytes: bytes}
	b.holders.Store(1)
	return b
}

// hold adds a holder. A nil keyBytes holds nothing.
func (b *keyBytes) hold() {
	if b != nil {
		b.holders.Add(1)
	}
}

// release takes a holder away, and the last gives the memory back.
func (b *keyBytes) release() {
	if b != nil && b.holders.Add(-1) == 0 {
		b.queue.Release(b.bytes)
	}
}
