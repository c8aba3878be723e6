package lookup

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// Renewal is for which engines a server renews what lies before the start of their lookups. An engine
// reads it in the reply to pool, and asks accordingly.
type Renewal uint8

const (
	// RenewAuto is for engines that only load. One that saves asks for its whole prompts itself.
	RenewAuto Renewal = iota
	// RenewAlways is for all engines.
	RenewAlways
	// RenewNever is for none.
	RenewNever
)

// Renewal returns what RemoteConfig.Renew says, RenewNever for a backend that is no backend.Leaser, and over
// the memory index.
func (s *Service) Renewal() Renewal {
	if s.Lease() == 0 {
		return RenewNever
	}
	return s.remote.cfg.Renew
}

// ErrRenew refuses to renew where there is nothing to renew.
var ErrRenew = fmt.Errorf("%w: this pool has nothing to renew, as its store has no leases or backend.mooncake.renew is never", ErrUnsupported)

const (
	// renewKeys is how many keys a call of a renewal asks for, or those of one block: under a millisecond of a
	// store, which a lookup may have to wait for.
	renewKeys = 256
	// renewPause is how long a renewal waits before it looks again whether a lookup asks the backend.
	renewPause = time.Millisecond
	// maxRenewWait is how long a call of a renewal waits for a moment without lookups, or the lease if that is
	// shorter: the renewals of others wait for it.
	maxRenewWait = time.Second
)

// CheckRenew returns ErrRenew if Renew does.
func (s *Service) CheckRenew() error {
	if s.Renewal() == RenewNever {
		return ErrRenew
	}
	return nil
}

// Renew asks the backend for the blocks that an engine would have saved of the first tokens of a prompt, so
// that the store does not evict them: those before the start of a lookup. hashes are those of these tokens,
// and borrowed until it returns. What the backend was asked for within Lease is not asked again.
//
// It asks in calls of some 256 keys, each while no lookup asks the backend, and takes at most Lease. If the
// backend fails, or the time is up, the rest is left out and an error returned. It fails with ErrRenew, and for hashes as Store does.
func (s *Service) Renew(ctx context.Context, hashes coordinator.Hashes) error {
	if err := s.CheckRenew(); err != nil {
		return err
	}
	if err := checkKeys(hashes); err != nil {
		return err
	}
	tokens := int64(hashes.Len()) * int64(s.pool.HashBlockSize)
	groups, err := s.coord.StoredChunks(nil, tokens, 0, coordinator.NoPrompt)
	if err != nil {
		return err
	}
	lease := s.Lease()
	s.remote.renewed.setKeep(int64(lease))
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	for g := range groups {
		r := renewal{remote: s.remote, hashes: hashes, group: s.remote.groups[g], prefixes: s.keyPrefixes(g), stride: s.coord.Stride(g), lease: int64(lease)}
		if s.coord.StoresStates(g) {
			err = r.renewState(ctx)
		} else {
			err = r.renewStored(ctx, &groups[g])
		}
		if err != nil {
			return fmt.Errorf("renew: %w", err)
		}
	}
	return nil
}

// renewal renews blocks of one group of a prompt.
type renewal struct {
	remote   *remote
	hashes   coordinator.Hashes
	group    foundGroup
	prefixes []string // of the keys, by rank
	stride   int
	lease    int64  // ns
	blocks   []byte // hashes of the next call
}

// renewStored renews the chunks that an engine would have saved.
func (r *renewal) renewStored(ctx context.Context, chunks *coordinator.StoredChunks) error {
	for chunk := int64(0); ; {
		start, end, ok := chunks.Next(chunk)
		if !ok {
			return r.ask(ctx)
		}
		for chunk = start; chunk < end; chunk += 64 {
			if err := r.renewWord(ctx, int(chunk), ^uint64(0)>>max(0, chunk+64-end)); err != nil {
				return err
			}
		}
		chunk = end
	}
}

// renewState renews the state at the end of the hashes. Which others an engine has saved is not known.
func (r *renewal) renewState(ctx context.Context) error {
	if last := r.hashes.Len()/r.stride - 1; last >= 0 {
		if err := r.renewWord(ctx, last, 1); err != nil {
			return err
		}
	}
	return r.ask(ctx)
}

// renewWord renews those of up to 64 chunks that the backend was not asked for within a lease, as far as they
// fill calls.
func (r *renewal) renewWord(ctx context.Context, chunk int, due uint64) error {
	first := chunk*r.stride + r.stride - 1
	for _, asked := range []*foundBlocks{r.remote.renewed, r.remote.found} {
		due &^= asked.found(r.group, r.hashes, first, r.stride, due, r.lease)
	}
	perCall := max(1, renewKeys/len(r.prefixes)) * r.hashes.HashLen()
	for ; due != 0; due &= due - 1 {
		r.blocks = append(r.blocks, r.hashes.At(first+bits.TrailingZeros64(due)*r.stride)...)
		if len(r.blocks) < perCall {
			continue
		}
		if err := r.ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ask makes a call of the backend for the blocks, if there are any, when no lookup asks it.
func (r *renewal) ask(ctx context.Context) error {
	blocks := coordinator.NewHashes(r.blocks, r.hashes.HashLen())
	r.blocks = r.blocks[:0]
	if blocks.Len() == 0 {
		return nil
	}
	if err := r.remote.waitIdle(ctx, min(maxRenewWait, time.Duration(r.lease))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.remote.cfg.Timeout)
	defer cancel()
	var keys []string
	bytes := int64(0)
	for _, prefix := range r.prefixes {
		keys = append(keys, coordinator.JoinKeys(prefix, blocks.Len(), blocks.HashLen(), blocks.All())...)
		bytes += int64(blocks.Len()) * int64(2*(len(prefix)+2*blocks.HashLen())+24) // as in coordinator.KeyStore.Reserve
	}
	memory, err := r.remote.keyMemory.acquire(ctx, bytes)
	if err != nil {
		return err
	}
	defer memory.release()
	asked, found := r.remote.renewed.begin(), r.remote.found.begin()
	answers, err := r.remote.renewKeys(ctx, keys, memory)
	if err != nil {
		return err
	}
	for first := 0; first < blocks.Len(); first += 64 {
		all := ^uint64(0) >> max(0, first+64-blocks.Len())
		r.remote.renewed.record(asked, r.group, blocks, first, 1, all)
		r.remote.found.record(found, r.group, blocks, first, 1, all&onAllRanks(answers, blocks.Len(), first))
	}
	return nil
}

// onAllRanks returns which of n blocks, from first on, are present by the answers of every rank, which follow
// each other.
func onAllRanks(answers []int, n, first int) (present uint64) {
	for i := range min(n-first, 64) {
		isAbsent := false
		for at := first + i; at < len(answers); at += n {
			isAbsent = isAbsent || answers[at] != 1
		}
		if !isAbsent {
			present |= 1 << i
		}
	}
	return present
}

// renewKeys makes one call of the backend for keys, which counts as no lookup's.
func (r *remote) renewKeys(ctx context.Context, keys []string, memory *keyBytes) ([]int, error) {
	call, err := r.beginRead(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := r.reads.run(ctx, callExists, memory, func() ([]int, error) { return r.store.Exists(ctx, backend.KeyList(keys)) })
	if err == nil && len(answers) != len(keys) {
		err = fmt.Errorf("%w: %d answers to %d keys", backend.ErrReply, len(answers), len(keys))
	}
	if err = call.end(err); err == nil {
		r.renewedKeys.Add(int64(len(keys)))
	}
	return answers, err
}

// waitIdle waits until no lookup asks the backend, for at most so long.
func (b *SharedBackend) waitIdle(ctx context.Context, longest time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for b.lookups.Load() > 0 && ctx.Err() == nil {
		select {
		case <-time.After(renewPause):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
