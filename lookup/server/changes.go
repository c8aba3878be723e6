package server

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
)

// Requests that change what is stored, and what of them is recorded for the account of the pool.

func runStore(ctx context.Context, j *job) error {
	err := j.service.Store(ctx, coordinator.GroupRank(j.q.GroupRank), j.hashes())
	if err == nil || errors.Is(err, api.ErrPartlyDone) {
		j.recordKeys(coordinator.GroupRank(j.q.GroupRank), false)
	}
	return j.doneIf(err)
}

func runEvict(ctx context.Context, j *job) error {
	err := j.service.Evict(ctx, coordinator.GroupRank(j.q.GroupRank), j.hashes())
	if err == nil || errors.Is(err, api.ErrPartlyDone) {
		j.recordKeys(coordinator.GroupRank(j.q.GroupRank), true)
	}
	return j.doneIf(err)
}

func runStorePrompt(ctx context.Context, j *job) error {
	p := &j.q.Prompt
	store := api.PromptStore{
		NumTokens: int64(p.NumTokens), StartToken: int64(p.StartToken), PromptTokens: int64(p.PromptTokens), FirstHash: int(p.FirstHash),
	}
	if p.PromptTokens == netproto.PromptTokensUnknown {
		store.PromptTokens = 0
	}
	for i := range p.NumRanks() {
		store.Ranks = append(store.Ranks, coordinator.GroupRank(p.Rank(i)))
	}
	for i := range p.NumStates() {
		group, tokens := p.State(i)
		store.States = append(store.States, api.State{Group: int(group), Tokens: int64(tokens)})
	}
	stored, err := j.service.StorePromptTelling(ctx, store, j.hashes(), func(places []int, keys coordinator.Hashes) {
		for _, place := range places {
			j.recordPlace(place, keys, false)
		}
	})
	if err != nil {
		return err
	}
	payload := netproto.AppendFrameHeader(nil, 4*len(stored), false)
	for _, n := range stored {
		payload = binary.BigEndian.AppendUint32(payload, uint32(n))
	}
	j.done(payload)
	return nil
}

func runReset(ctx context.Context, j *job) error {
	err := j.service.Reset(ctx)
	j.recordReset(err)
	return j.doneIf(err)
}

func runResetRank(ctx context.Context, j *job) error {
	err := j.service.ResetRank(ctx, coordinator.GroupRank(j.q.GroupRank))
	j.recordReset(err)
	return j.doneIf(err)
}

// applyRenew queues the hashes of a renew and answers it.
func applyRenew(s *session, j *job) error {
	if err := j.service.Backend().CheckRenew(); err != nil {
		return err
	}
	s.shared.renewer.Add(s, j.service, j.takeHashes(), j.q.HashLen)
	j.done(nil)
	return nil
}

// recordKeys records the keys of a job that were stored or evicted.
func (j *job) recordKeys(at coordinator.GroupRank, removed bool) {
	if place, err := j.service.Place(at); err == nil {
		j.recordPlace(place, j.hashes(), removed)
	}
}

// recordPlace records keys that a worker has stored or evicted at a place. What is stored over a store is not recorded:
// engines store there themselves.
func (j *job) recordPlace(place int, keys coordinator.Hashes, removed bool) {
	if j.service.Backend() != nil && !removed {
		return
	}
	a := j.pool.account.NewChange(place, keys.Len(), removed)
	if a == nil {
		return
	}
	addAll(a, keys)
	j.session.conn.loop.recorder.Record(a, monotime.Now())
}

// recordReset records that a worker has reset the pool.
func (j *job) recordReset(err error) {
	if err != nil && !errors.Is(err, api.ErrPartlyDone) {
		return
	}
	j.session.asks.record(j.pool.account.NewEmptied(true))
	if s := j.session.shared; s.backend != nil { // which may have removed what others have there, too
		for _, p := range s.pools.list() {
			if p != j.pool {
				j.session.asks.record(p.account.NewEmptied(false))
			}
		}
	}
}

// addAll adds hashes to an ask.
func addAll(a *tokens.Event, hashes coordinator.Hashes) {
	for i := range hashes.Len() {
		a.AddHashes(hashes.At(i), hashes.HashLen())
	}
}
