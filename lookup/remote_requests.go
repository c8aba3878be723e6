package lookup

import (
	"context"
	"errors"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Lookup is a lookup over the backend. A failing backend is a hit of 0 and no
// error, as in the reference; the rules' own errors are returned. ctx ends when nobody
// waits for the answer any longer. numHashes is how many the lookup has, of which hashes
// are those that can change the answer.
func (r *Remote) Lookup(ctx context.Context, numTokens int64, numHashes int, hashes netproto.Hashes) (api.Hit, error) {
	o := r.coalescer.do(ctx, numTokens, hashes, func(ctx context.Context) (o outcome) {
		strategy, lease := r.cfg.Strategy, r.lease(ctx)
		defer lease.end()
		if ctx.Err() != nil {
			strategy = Gallop // too late: no need to build all keys for nothing
		}
		o.hit, o.err = strategy.ask(r.service.coord, numTokens, hashes, lease)
		o.ended = lease.late
		return o
	})
	if o.err != nil {
		return api.Hit{}, o.err
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		r.Count(numTokens, hashes.Len(), o.hit)
	}
	hit := newHit(o.hit, r.service.coord.Alignment())
	if watch := r.cfg.Watch; watch != nil {
		watch(LookupEvent{NumTokens: numTokens, NumHashes: numHashes, Hashes: hashes, Hit: hit})
	}
	return hit, nil
}

// Count counts a lookup of numTokens, of which hashes cover numHashes blocks.
func (r *Remote) Count(numTokens int64, numHashes int, hit int64) {
	tokenLen, _ := r.service.coord.TokenLen(numTokens)
	r.service.count(min(tokenLen, int64(numHashes)*int64(r.service.pool.HashBlockSize)), hit)
}

// Explain is an explain over the backend. It fails when the backend does.
func (r *Remote) Explain(ctx context.Context, numTokens int64, hashes netproto.Hashes) (api.Explanation, error) {
	lease := r.lease(ctx)
	defer lease.end()
	if err := ctx.Err(); err != nil { // too late: no need to build all keys for nothing
		return api.Explanation{}, r.countLate(err)
	}
	hit, ends, err := r.service.coord.LookupExplain(numTokens, hashes, lease)
	if err != nil {
		return api.Explanation{}, err
	}
	return api.NewExplanation(newHit(hit, r.service.coord.Alignment()), ends), nil
}

// Store adds keys to what the backend holds of a group rank.
func (r *Remote) Store(ctx context.Context, at GroupRank, hashes netproto.Hashes) error {
	err := r.write(ctx, "store", func(ctx context.Context) error { return r.inPieces(ctx, at, hashes, r.store.Store) })
	if err == nil {
		r.stored.Add(int64(hashes.Len()))
	}
	return err
}

// Evict takes keys away from what the backend holds of a group rank.
func (r *Remote) Evict(ctx context.Context, at GroupRank, hashes netproto.Hashes) error {
	err := r.write(ctx, "evict", func(ctx context.Context) error { return r.inPieces(ctx, at, hashes, r.store.Evict) })
	if err == nil {
		r.evicted.Add(int64(hashes.Len()))
	}
	return err
}

// writeAtOnce is how many keys one call of a backend stores or evicts: a message of
// 64 MiB can name 64 million, which would take gigabytes.
const writeAtOnce = 16384

// inPieces makes a change in as many calls as its keys need, until one fails.
func (r *Remote) inPieces(ctx context.Context, at GroupRank, hashes netproto.Hashes, do func(ctx context.Context, keys []string) error) error {
	for rest := hashes.Bytes(); ; {
		n := min(len(rest), writeAtOnce*hashes.HashLen())
		if err := r.changeKeys(ctx, r.keysOf(at, netproto.NewHashes(rest[:n], hashes.HashLen())), do); err != nil {
			return err
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Reset removes every block of the pool from the backend.
func (r *Remote) Reset(ctx context.Context) error {
	return r.write(ctx, "reset", func(ctx context.Context) error {
		return r.changeKeys(ctx, nil, func(ctx context.Context, _ []string) error { return r.store.Reset(ctx) })
	})
}

// Needed returns the number of tokens that a lookup is about and how many of its hashes
// can change its answer, and 0 with the rules' error if it has none. Hashes behind the
// last token never do. unaligned is as for Query.Begin.
func (r *Remote) Needed(tokens uint64, unaligned bool, numHashes int) (numTokens int64, hashes int, err error) {
	numTokens = r.service.clampTokens(tokens, unaligned)
	hashes, err = r.needed(numTokens, numHashes)
	return numTokens, hashes, err
}

func (r *Remote) needed(numTokens int64, numHashes int) (int, error) {
	if numTokens == 0 || numHashes == 0 {
		return 0, nil // answered 0 before anything is checked
	}
	tokenLen, err := r.service.coord.TokenLen(numTokens)
	if err != nil {
		return 0, err
	}
	most := 0
	for g := range r.service.coord.NumGroups() {
		most = max(most, r.service.coord.Positions(g, tokenLen, math.MaxInt)*r.service.coord.KeyStride(g))
	}
	return min(numHashes, most), nil
}

// Config returns the configuration with its defaults filled in.
func (r *Remote) Config() RemoteConfig { return r.cfg }

// CountRejected counts a request that the backend is not asked for.
func (r *Remote) CountRejected() { r.rejected.Add(1) }

// CountTimeout counts a request whose time was up before the backend could be asked.
func (r *Remote) CountTimeout() { r.timeouts.Add(1) }

// Remote returns the service's way to its backend, nil over the memory index.
func (s *Service) Remote() *Remote { return s.remote }

// keysOf returns the reference's keys of hashes at a group rank.
func (r *Remote) keysOf(at GroupRank, hashes netproto.Hashes) []string {
	rank := coordinator.Rank{TP: int(at.TPRank), PP: int(at.PPRank), PCP: int(at.PCPRank), DCP: r.service.pool.DCPRank}
	if r.service.pool.Revision == coordinator.Revision20260817 {
		rank.DCP = rank.TP % r.service.pool.DCPSize
	}
	prefix := r.service.coord.KeyPrefix(int(at.Group), rank)
	return coordinator.JoinKeys(prefix, hashes.Len(), hashes.HashLen(), hashes.All())
}
