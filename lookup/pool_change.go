package lookup

import (
	"context"
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// writeAtOnce is how many keys one call of a backend stores or evicts: a message of
// 64 MiB can name 64 million, which would take gigabytes.
const writeAtOnce = 16384

// keysCall is a method of a backend that changes keys.
type keysCall func(ctx context.Context, keys []string) error

// storeKeys adds the keys of hashes on a rank to the backend.
func (p *PoolBackend) storeKeys(ctx context.Context, at coordinator.GroupRank, hashes coordinator.Hashes) error {
	if err := p.changeKeys(ctx, callStore, at, hashes, p.backend.Store); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	p.stored.Add(int64(hashes.Len()))
	return nil
}

// evictKeys removes the keys of hashes on a rank from the backend.
func (p *PoolBackend) evictKeys(ctx context.Context, at coordinator.GroupRank, hashes coordinator.Hashes) error {
	if err := p.changeKeys(ctx, callEvict, at, hashes, p.backend.Evict); err != nil {
		return fmt.Errorf("evict: %w", err)
	}
	p.evicted.Add(int64(hashes.Len()))
	return nil
}

// reset removes every block of the pool from the backend.
func (p *PoolBackend) reset(ctx context.Context) error {
	q, err := p.shared.begin(ctx, callReset, &p.requests)
	if err == nil {
		err = q.end(q.change(p.backend.Reset))
	}
	if err != nil {
		return fmt.Errorf("reset: %w", markPartlyDone(false, err))
	}
	return nil
}

// changeKeys makes a change in as many calls as its keys need, until one fails. The
// breaker sees them as one.
func (p *PoolBackend) changeKeys(ctx context.Context, kind callKind, at coordinator.GroupRank, hashes coordinator.Hashes, change keysCall) error {
	q, err := p.shared.begin(ctx, kind, &p.requests)
	if err != nil {
		return err
	}
	someDone, err := p.changeBatches(q, at, hashes, change)
	return q.end(markPartlyDone(someDone, err))
}

// changeBatches makes the calls of a change.
func (p *PoolBackend) changeBatches(
	q *request, at coordinator.GroupRank, hashes coordinator.Hashes, change keysCall,
) (someDone bool, err error) {
	rank := p.coord.StoreRank(int(at.TPRank), int(at.PPRank), int(at.PCPRank))
	prefix := p.coord.KeyPrefix(int(at.Group), rank)
	for rest := hashes.Bytes(); ; {
		n := min(len(rest), writeAtOnce*hashes.HashLen())
		batch := coordinator.NewHashes(rest[:n], hashes.HashLen())
		keys := coordinator.JoinKeys(prefix, batch.Len(), batch.HashLen(), batch.All())
		if err := q.change(func(ctx context.Context) error { return change(ctx, keys) }); err != nil {
			return someDone, err
		}
		someDone = true
		if rest = rest[n:]; len(rest) == 0 {
			return true, nil
		}
		if err := q.ctx.Err(); err != nil {
			return true, err
		}
	}
}
