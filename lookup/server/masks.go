package server

import (
	"context"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Requests for masks.

// masksBytes bounds masks. After each run of a mask is a chunk that is in none.
func masksBytes(j *job) int {
	const header, run = 16, 8
	tokens, runs := max(j.lookup.numTokens, int64(j.q.Prompt.NumTokens)), int64(0)
	for _, size := range j.pool.blockSizes {
		runs = min(runs+tokens/int64(size)/2+1, api.MaxRuns)
	}
	return header*len(j.pool.blockSizes) + run*int(runs)
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

// encodeMasks returns the frame of masks.
func encodeMasks(masks []api.GroupMask) (frame []byte) {
	for _, m := range masks {
		sent := netproto.WireMask{Group: netproto.NoGroup, First: uint32(m.First), End: uint32(m.End), All: m.All}
		if m.Group != api.NotStored {
			sent.Group = uint32(m.Group)
		}
		for _, run := range m.Runs {
			sent.Runs = append(sent.Runs, netproto.WireRun{Start: uint32(run.Start), End: uint32(run.End)})
		}
		frame = netproto.AppendMask(frame, &sent)
	}
	return frame
}
