package lookup

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hitline/hitline/coordinator"
)

// keyBytes is memory of the keys of a call, with their answers. The lookup and its call of the backend hold it together, as
// an abandoned call outlives the lookup.
type keyBytes struct {
	of      *SharedBackend
	bytes   int64
	holders atomic.Int32
}

// admitKeys waits for memory until ctx ends: no request takes more than it leaves then, and those that take little are first.
// So it fails with ErrTooManyKeys for more than half of the memory of all requests.
func (b *SharedBackend) admitKeys(ctx context.Context, bytes int64) (*keyBytes, error) {
	if most := b.keys.Max() / 2; bytes > most {
		return nil, fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, most)
	}
	if err := b.keys.Wait(ctx, bytes, true, bytes); err != nil {
		return nil, err
	}
	b.cfg.Memory.Charge(bytes) // MaxKeyBytes is a part of its bound
	k := &keyBytes{of: b, bytes: bytes}
	k.holders.Store(1)
	return k, nil
}

// addHolder adds a holder. A nil keyBytes is no memory.
func (k *keyBytes) addHolder() {
	if k != nil {
		k.holders.Add(1)
	}
}

// release removes a holder. The last one frees the memory.
func (k *keyBytes) release() {
	if k != nil && k.holders.Add(-1) == 0 {
		k.of.cfg.Memory.Free(k.bytes)
		k.of.keys.Free(k.bytes, true)
	}
}

// maxExpected returns how many hashes of a length a lookup asks for at once because it expects them: their keys take at most half of
// what a request gets. So none is refused for what it need not ask for.
func (p *PoolBackend) maxExpected(hashLen int) int {
	bytes := int64(0)
	for _, prefix := range p.full {
		bytes += coordinator.KeyBytes(prefix, hashLen)
	}
	return int(p.shared.keys.Max() / 4 / max(1, bytes))
}
