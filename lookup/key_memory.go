package lookup

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
)

// isSmallRound reports whether keys with their answers are few: about 500, built in 100 microseconds. Such a round waits
// neither for memory nor for a processor because others have many. The first one of a lookup often is.
func isSmallRound(bytes int64) bool { return bytes <= 2*admission.SmallBytes }

// keyBytes is memory that was admitted. Its owner releases it once.
type keyBytes struct {
	of    *SharedBackend
	bytes int64
}

// admitKeys waits for memory until ctx ends. It fails with ErrTooManyKeys for more than half of the memory of all requests.
func (b *SharedBackend) admitKeys(ctx context.Context, bytes int64) (*keyBytes, error) {
	if most := b.keys.Max() / 2; bytes > most {
		return nil, fmt.Errorf("%w: they take %d bytes, and a request gets %d at most", ErrTooManyKeys, bytes, most)
	}
	if err := b.keys.Wait(ctx, bytes, isSmallRound(bytes)); err != nil {
		return nil, err
	}
	b.cfg.Memory.Charge(bytes) // MaxKeyBytes is a part of its bound
	return &keyBytes{of: b, bytes: bytes}, nil
}

// release frees the memory. A nil keyBytes has none.
func (k *keyBytes) release() {
	if k != nil {
		k.of.cfg.Memory.Free(k.bytes)
		k.of.keys.Free(k.bytes, isSmallRound(k.bytes))
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
