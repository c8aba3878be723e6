package lookup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// ErrNoMemory refuses a request because all requests hold as much memory as they may, see
// RemoteConfig.Memory.
var ErrNoMemory = errors.New("all requests hold as much memory as the server allows: ask again later")

// errWait means that there is no key memory now.
var errWait = errors.New("lookup: the key memory is in use")

// keyMemory bounds the memory of the keys of all calls in flight, with their answers. Small
// requests have a quarter of it, larger ones the rest, each with its own queue: a request that
// waits for much memory delays no small one. What is acquired is charged to the account, too.
type keyMemory struct {
	bytes        int64
	small, large *semaphore.Weighted
	account      *MemoryAccount // nil for none
}

func newKeyMemory(bytes int64, account *MemoryAccount) *keyMemory {
	return &keyMemory{
		bytes: bytes, small: semaphore.NewWeighted(bytes / 4), large: semaphore.NewWeighted(bytes - bytes/4), account: account,
	}
}

// maxPerRequest is how many bytes one request may acquire.
func (m *keyMemory) maxPerRequest() int64 { return min(m.bytes/2, math.MaxInt) }

// A small request takes at most bytes/smallPart. The quarter of the memory that small
// requests have then serves eight of the largest of them at a time. By default one may
// have 100,000 keys.
const smallPart = 32

func (m *keyMemory) isSmall(bytes int64) bool { return bytes <= m.bytes/smallPart }

func (m *keyMemory) queue(bytes int64) *semaphore.Weighted {
	if m.isSmall(bytes) {
		return m.small
	}
	return m.large
}

// tryAcquire is acquire without waiting; it returns errWait if there is no memory now.
func (m *keyMemory) tryAcquire(bytes int64) (*keyBytes, error) {
	if q := m.queue(bytes); q.TryAcquire(bytes) {
		return m.charge(q, bytes)
	}
	return nil, errWait
}

// acquire waits for bytes, at most maxPerRequest, until ctx ends. It does not wait for the
// account: if that refuses, it returns ErrNoMemory.
func (m *keyMemory) acquire(ctx context.Context, bytes int64) (*keyBytes, error) {
	q := m.queue(bytes)
	if err := q.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	return m.charge(q, bytes)
}

// charge charges the account for bytes that were acquired from q. If it refuses, they are
// returned to q.
func (m *keyMemory) charge(q *semaphore.Weighted, bytes int64) (*keyBytes, error) {
	if !m.account.Reserve(bytes) {
		q.Release(bytes)
		return nil, fmt.Errorf("%w, the keys take %d bytes", ErrNoMemory, bytes)
	}
	b := &keyBytes{queue: q, account: m.account, bytes: bytes}
	b.holders.Store(1)
	return b, nil
}

// keyBytes is memory that was acquired. The lookup and its call of the backend hold it
// together, as an abandoned call outlives the lookup.
type keyBytes struct {
	queue   *semaphore.Weighted
	account *MemoryAccount
	bytes   int64
	holders atomic.Int32
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
		b.account.Free(b.bytes)
	}
}
