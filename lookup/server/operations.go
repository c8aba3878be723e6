package server

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

func init() { // the functions refer to the table
	operations = [netproto.NumTags]operation{
		netproto.TagLookup:      {inline: overIndex, lookup: true, hit: true, callsStore: true, run: runLookup},
		netproto.TagLookupFrom:  {inline: overIndex, lookup: true, hit: true, from: true, callsStore: true, run: runLookup},
		netproto.TagExplain:     {lookup: true, from: true, callsStore: true, run: runExplain, replyBytes: explanationBytes},
		netproto.TagPlan:        {lookup: true, hit: true, from: true, callsStore: true, run: runPlan, replyBytes: masksBytes},
		netproto.TagLoadMask:    {run: runMasks, replyBytes: masksBytes},
		netproto.TagStoreMask:   {run: runMasks, replyBytes: masksBytes},
		netproto.TagLookupMask:  {run: runMasks, replyBytes: masksBytes},
		netproto.TagStore:       {inline: overIndex, callsStore: true, changes: true, run: runStore},
		netproto.TagEvict:       {inline: overIndex, callsStore: true, changes: true, run: runEvict},
		netproto.TagStorePrompt: {callsStore: true, changes: true, run: runStorePrompt},
		netproto.TagReset:       {callsStore: true, changes: true, run: runReset},
		netproto.TagResetRank:   {callsStore: true, changes: true, run: runResetRank},
		netproto.TagRenew:       {apply: applyRenew},
		netproto.TagPing:        {inline: always, noPool: true, apply: applyPing, replyBytes: echoBytes},
		netproto.TagStat:        {noPool: true, run: runStat, replyBytes: statBytes},
		netproto.TagPool:        {noPool: true, changes: true, run: runPool, apply: applyPool},
		netproto.TagAuth:        {noPool: true, changes: true, apply: applyAuth},
		netproto.TagUnknown:     {noPool: true},
	}
}

func runLookup(ctx context.Context, j *job) (err error) {
	if j.query != nil {
		j.lookup.answer.Hit, err = j.query.Finish()
		j.lookup.answer.Ending = j.query.Ending(j.lookup.answer.Hit)
	} else {
		j.lookup.answer, err = j.service.LookupAnswer(ctx, j.lookup.numTokens, j.hashes(), j.lookup.expected)
		j.sampleMissing()
	}
	if err == nil {
		j.reply = appendHit(j.reply, j.q.Envelope, j.lookup.answer.Hit)
	}
	return err
}

func runPlan(ctx context.Context, j *job) error {
	plan, err := j.service.Plan(ctx, j.lookup.numTokens, j.hashes())
	if err != nil {
		return err
	}
	j.reply = netproto.AppendPlanReply(j.reply, j.q.Envelope, uint32(plan.Hit.Tokens), len(plan.Hit.TailBoundaries))
	j.reply = netproto.AppendFrame(appendTailBoundaries(j.reply, plan.Hit), encodeMasks(plan.Masks), false)
	return nil
}

func runExplain(ctx context.Context, j *job) error {
	e, err := j.service.Explain(ctx, j.lookup.numTokens, j.hashes())
	if err != nil {
		return err
	}
	e.Pool, e.Account = j.pool.name, j.explainTokens(&e)
	return j.doneJSON(e)
}

// runMasks serves a load_mask, a store_mask or a lookup_mask.
func runMasks(ctx context.Context, j *job) (err error) {
	var masks []api.GroupMask
	switch p := &j.q.Prompt; j.q.Tag {
	case netproto.TagLoadMask:
		masks, err = j.service.LoadMask(ctx, int64(p.NumTokens), int(p.NumHashes))
	case netproto.TagStoreMask:
		prompt := int64(p.PromptTokens)
		if p.PromptTokens == netproto.PromptTokensUnknown {
			prompt = -1
		}
		masks, err = j.service.StoreMask(ctx, int64(p.NumTokens), int64(p.StartToken), prompt)
	default:
		masks, err = j.service.LookupMask(ctx, int64(p.NumTokens))
	}
	if err == nil {
		j.done(netproto.AppendFrame(nil, encodeMasks(masks), false))
	}
	return err
}

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

// doneIf sets the reply 01 if err is nil, and returns err.
func (j *job) doneIf(err error) error {
	if err == nil {
		j.done(nil)
	}
	return err
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

func applyPing(s *session, j *job) error {
	j.done(s.shared.pingReply(&j.q, j.pool))
	return nil
}

func runStat(_ context.Context, j *job) error {
	return j.doneJSON(j.session.shared.statFor(j.session.conn.peer, j.credential, j.pool))
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
