package lookup

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// PoolBackend is a backend as the service of one pool asks it. Every call passes the circuit breaker and is
// counted. nil stands for none: a service over the memory index. Safe for concurrent use.
type PoolBackend struct {
	rules
	shared    *SharedBackend
	backend   backend.Backend // as this pool uses it
	groups    []groupKeys     // by group
	full      []string        // what keys of full-attention groups begin with, of all ranks
	coalescer coalescer

	lookups           *counters
	requests          requestCounters
	rounds, keys      atomic.Int64 // calls of lookups that began, and the keys that they have asked for
	stored, evicted   atomic.Int64
	renewedKeys       atomic.Int64
	renewalsDropped   atomic.Int64
	rememberedLookups atomic.Int64 // that made no call, as all was remembered from calls before
}

// newPoolBackend returns shared as a pool uses it, or store, which is the same if it is nil.
func newPoolBackend(shared *SharedBackend, store backend.Backend, r rules, lookups *counters) *PoolBackend {
	if store == nil {
		store = shared.backend
	}
	p := &PoolBackend{rules: r, shared: shared, backend: store, lookups: lookups}
	for g := range r.coord.NumGroups() {
		prefixes := p.keyPrefixes(g)
		p.groups = append(p.groups, newGroupKeys(prefixes))
		if r.coord.Group(g).Kind.IsFull() {
			p.full = append(p.full, prefixes...)
		}
	}
	return p
}

// Shared returns the backend that several pools may share, nil for none.
func (p *PoolBackend) Shared() *SharedBackend {
	if p == nil {
		return nil
	}
	return p.shared
}

// BackendInfo is what lookups over a backend may count on.
type BackendInfo struct {
	// Lease is for how long at least the backend keeps a block after it was asked for it, 0 if that is not known.
	Lease time.Duration
	// LeaseLeft is Lease less the time for which a block may have been remembered when a lookup is answered.
	LeaseLeft time.Duration
	// Timeout is how long a lookup waits for the backend.
	Timeout time.Duration
	// Renewal is what RemoteConfig.Renew says, RenewNever for a backend without leases.
	Renewal Renewal
}

// Info returns what is known now, also of nil.
func (p *PoolBackend) Info() BackendInfo {
	if p == nil {
		return BackendInfo{Renewal: RenewNever}
	}
	lease := p.backend.Lease().Duration
	i := BackendInfo{Lease: lease, Timeout: p.shared.cfg.Timeout, Renewal: p.shared.cfg.Renew}
	i.LeaseLeft = max(0, lease-time.Duration(p.shared.memory.rememberFor()))
	if lease == 0 {
		i.Renewal = RenewNever
	}
	return i
}

// CheckReset returns an error if the backend refuses every Reset.
func (p *PoolBackend) CheckReset() error {
	if p == nil {
		return nil
	}
	return p.backend.CheckReset()
}

// sharingEpoch is the epoch of lookups of this pool that share an answer: a store begins one, too.
func (p *PoolBackend) sharingEpoch() uint64 {
	return p.shared.memory.epoch.now() + p.requests.stores.Load()
}

// askRound makes one call of a lookup. Keys that the backend has left out are not counted.
func (p *PoolBackend) askRound(ctx context.Context, keys backend.Keys, peek bool) ([]int, error) {
	q, err := p.shared.begin(ctx, callExists, &p.requests)
	if err != nil {
		return nil, err
	}
	p.rounds.Add(1)
	answers, err := q.exists(p.backend, keys, peek)
	asked := keys.Len()
	if err == nil {
		asked = min(asked, len(answers))
	}
	p.keys.Add(int64(asked))
	return answers, q.end(err)
}

// groupBlocks are blocks of one group whose keys begin with prefixes, one for each rank.
type groupBlocks struct {
	prefixes []string
	blocks   coordinator.Hashes
}

// askAside makes one call for blocks, which counts as no lookup's, and returns on how many ranks
// each is, of all lists in their order. begin, unless nil, is called before the call is written.
func (p *PoolBackend) askAside(ctx context.Context, lists []groupBlocks, peek bool, begin func()) (onRanks []int, err error) {
	ctx, cancel := withTimeout(ctx, p.shared.cfg.Timeout)
	defer cancel()
	var keys []string
	bytes := int64(0)
	for _, list := range lists {
		n, hashLen := list.blocks.Len(), list.blocks.HashLen()
		for _, prefix := range list.prefixes {
			keys = append(keys, coordinator.JoinKeys(prefix, n, hashLen, list.blocks.All())...)
			bytes += int64(n) * coordinator.KeyBytes(prefix, hashLen)
		}
	}
	memory, err := p.shared.admitKeys(ctx, bytes)
	if err != nil {
		return nil, err
	}
	defer memory.release()
	if begin != nil {
		begin()
	}
	q, err := p.shared.begin(ctx, callExists, &p.requests)
	if err != nil {
		return nil, err
	}
	answers, err := q.exists(p.backend, backend.KeyList(keys), peek)
	if err == nil && len(answers) != len(keys) {
		err = fmt.Errorf("%w: %d answers to %d keys", backend.ErrReply, len(answers), len(keys))
	}
	if err = q.end(err); err != nil {
		return nil, err
	}
	for _, list := range lists {
		first := len(onRanks)
		onRanks = append(onRanks, make([]int, list.blocks.Len())...)
		for range list.prefixes {
			for i := range list.blocks.Len() {
				if answers[i] == 1 {
					onRanks[first+i]++
				}
			}
			answers = answers[list.blocks.Len():]
		}
	}
	return onRanks, nil
}
