package lookup

import (
	"context"
	"errors"
	"fmt"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// writeAtOnce is how many keys one call of a backend stores or evicts: a message of
// 64 MiB can name 64 million, which would take gigabytes.
const writeAtOnce = 16384

// storeKeys adds the keys of hashes on a rank to the backend.
func (r *remote) storeKeys(ctx context.Context, at coordinator.GroupRank, hashes coordinator.Hashes) error {
	if err := r.changeKeys(ctx, callStore, at, hashes, r.store.Store); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	r.stored.Add(int64(hashes.Len()))
	return nil
}

// evictKeys removes the keys of hashes on a rank from the backend.
func (r *remote) evictKeys(ctx context.Context, at coordinator.GroupRank, hashes coordinator.Hashes) error {
	if err := r.changeKeys(ctx, callEvict, at, hashes, r.store.Evict); err != nil {
		return fmt.Errorf("evict: %w", err)
	}
	r.evicted.Add(int64(hashes.Len()))
	return nil
}

// reset removes every block of the pool from the backend.
func (r *remote) reset(ctx context.Context) error {
	call, err := r.beginChange(ctx, callReset)
	if err == nil {
		err = call.end(r.change(ctx, callReset, r.store.Reset))
	}
	if err != nil {
		return fmt.Errorf("reset: %w", markPartlyDone(false, err))
	}
	return nil
}

// changeKeys makes a change in as many calls as its keys need, until one fails. The
// breaker sees them as one.
func (r *remote) changeKeys(ctx context.Context, kind callKind, at coordinator.GroupRank, hashes coordinator.Hashes, change func(ctx context.Context, keys []string) error) error {
	call, err := r.beginChange(ctx, kind)
	if err != nil {
		return err
	}
	someDone, err := r.changeBatches(ctx, kind, at, hashes, change)
	return call.end(markPartlyDone(someDone, err))
}

// changeBatches is changeKeys without the breaker.
func (r *remote) changeBatches(ctx context.Context, kind callKind, at coordinator.GroupRank, hashes coordinator.Hashes, change func(ctx context.Context, keys []string) error) (someDone bool, err error) {
	for rest := hashes.Bytes(); ; {
		n := min(len(rest), writeAtOnce*hashes.HashLen())
		keys := r.keysOf(at, coordinator.NewHashes(rest[:n], hashes.HashLen()))
		if err := r.change(ctx, kind, func(ctx context.Context) error { return change(ctx, keys) }); err != nil {
			return someDone, err
		}
		someDone = true
		if rest = rest[n:]; len(rest) == 0 {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return true, err
		}
	}
}

// markPartlyDone makes an error wrap api.ErrPartlyDone if a part of the change was done, as far as it is known.
func markPartlyDone(someDone bool, err error) error {
	if err != nil && (someDone || isPartlyDone(err)) {
		return fmt.Errorf("%w: %w", api.ErrPartlyDone, err)
	}
	return err
}

// isPartlyDone reports whether a part of a change was done, as far as its error says.
func isPartlyDone(err error) bool {
	return errors.Is(err, api.ErrPartlyDone) || errors.Is(err, backend.ErrPartlyDone)
}

// change makes one call of the backend that has no answers.
func (r *remote) change(ctx context.Context, kind callKind, change func(ctx context.Context) error) error {
	_, err := r.changes.run(ctx, kind, nil, func() ([]int, error) { return nil, change(ctx) })
	return err
}

// keysOf returns the reference's keys of hashes on a rank.
func (r *remote) keysOf(at coordinator.GroupRank, hashes coordinator.Hashes) []string {
	rank := r.service.coord.StoreRank(int(at.TPRank), int(at.PPRank), int(at.PCPRank))
	prefix := r.service.coord.KeyPrefix(int(at.Group), rank)
	return coordinator.JoinKeys(prefix, hashes.Len(), hashes.HashLen(), hashes.All())
}
