package lookup

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// ErrNoMemory refuses a request because all requests hold as much memory as they may, see
// RemoteConfig.Memory.
var ErrNoMemory = errors.New("all requests hold as much memory as the server allows: ask again later")

// keyMemory bounds the memory of the keys of all calls in flight, with their answers. Small
// requests have a quarter of it, larger ones the rest, each with its own queue: a request that
// waits for much memory delays no small one. What is acquired is charged to the account, too.
type keyMemory struct {
	bytes        int64
	small, large *semaphore.Weighted
	account      *MemoryAccount // nil for none
}

// A small request takes at most bytes/smallPart. The quarter of the memory that small
// requests have then serves eight of the largest of them at a time. By default one may
// have 100,000 keys.
const smallPart = 32

func newKeyMemory(bytes int64, account *MemoryAccount) *keyMemory {
	return &keyMemory{
		bytes: bytes, small: semaphore.NewWeighted(bytes / 4), large: semaphore.NewWeighted(bytes - bytes/4), account: account,
	}
}

// acquire waits for bytes until ctx ends. It fails with ErrTooManyKeys if they are more than half of
// the memory of all requests. It does not wait for the account: if that refuses, it fails with
// ErrNoMemory.
func (m *keyMemory) acquire(ctx context.Context, bytes int64) (*keyBytes, error) {
	if bytes > m.bytes/2 {
		return nil, fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, m.bytes/2)
	}
	queue := m.large
	if bytes <= m.bytes/smallPart {
		queue = m.small
	}
	if err := queue.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	if !m.account.Reserve(bytes) {
		queue.Release(bytes)
		return nil, fmt.Errorf("%w, the keys take %d bytes", ErrNoMemory, bytes)
	}
	return &keyBytes{queue: queue, account: m.account, bytes: bytes}, nil
}

// keyBytes is memory that was acquired. Its owner releases it once.
type keyBytes struct {
	queue   *semaphore.Weighted
	account *MemoryAccount
	bytes   int64
}

// release frees the memory. A nil keyBytes has none.
func (b *keyBytes) release() {
	if b != nil {
		b.queue.Release(b.bytes)
		b.account.Free(b.bytes)
	}
}
