package lookup

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// keyMemory bounds the memory of the keys of all calls in flight. Small requests have a
// quarter of it, larger ones the rest, each with its own queue: a request that waits for
// much memory delays no small one.
type keyMemory struct {
	bytes        int64
	small, large *semaphore.Weighted
}

func newKeyMemory(bytes int64) *keyMemory {
	return &keyMemory{bytes: bytes, small: semaphore.NewWeighted(bytes / 4), large: semaphore.NewWeighted(bytes - bytes/4)}
}

// maxPerRequest is how many bytes one request may acquire.
func (m *keyMemory) maxPerRequest() int64 { return m.bytes / 2 }

// A small request takes at most bytes/smallPart. The quarter of the memory that small
// requests have then serves eight of the largest of them at a time. By default one may
// have 100,000 keys.
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

// acquire waits for bytes, at most maxPerRequest, until ctx ends.
func (m *keyMemory) acquire(ctx context.Context, bytes int64) (*keyBytes, error) {
	q := m.queue(bytes)
	if err := q.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	return newKeyBytes(q, bytes), nil
}

// keyBytes is memory that was acquired. The lookup and its call of the backend hold it
// together, as an abandoned call outlives the lookup.
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

// release removes a holder. The last one frees the memory.
func (b *keyBytes) release() {
	if b != nil && b.holders.Add(-1) == 0 {
		b.queue.Release(b.bytes)
	}
}
