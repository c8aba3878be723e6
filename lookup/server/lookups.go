package server

import (
	"context"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/netproto"
)

// Lookups that are jobs, and the reply to any.

func runLookup(ctx context.Context, j *job) (err error) {
	if j.query != nil {
		j.lookup.answer.Hit, err = j.query.Finish()
		j.lookup.answer.Ending = j.query.Ending(j.lookup.answer.Hit)
	} else {
		o := lookup.LookupOptions{Expected: j.lookup.expected, Deadline: j.deadline}
		j.lookup.answer, err = j.service.LookupAnswer(ctx, j.lookup.numTokens, j.hashes(), o)
		j.sampleMissing()
	}
	if err == nil {
		j.reply = appendHit(j.reply, j.q.Envelope, j.lookup.answer.Hit)
	}
	return err
}

// sampleMissing keeps some blocks that a lookup over a store lacked, for a look whether they are saved. A worker calls
// it.
func (j *job) sampleMissing() {
	e := &j.lookup.answer.Ending
	if j.pool.account == nil || j.service.Backend() == nil || e.Failed {
		return
	}
	found := e.Found
	if e.Group >= 0 {
		found = int(max(j.lookup.answer.Hit.Tokens, j.lookup.start) / int64(j.pool.hashBlock))
	}
	groups, keys := j.service.SampleMissing(j.lookup.numTokens, j.hashes(), found)
	j.lookup.missing = tokens.Missing{Groups: groups, Hashes: coordinator.NewHashes(keys, j.q.HashLen)}
}

// appendHit appends the reply to a lookup.
func appendHit(dst, envelope []byte, hit api.Hit) []byte {
	return appendTailBoundaries(netproto.AppendTailHit(dst, envelope, uint32(hit.Tokens), len(hit.TailBoundaries)), hit)
}

// appendTailBoundaries appends those of a hit whose tokens are in dst.
func appendTailBoundaries(dst []byte, hit api.Hit) []byte {
	for _, b := range hit.TailBoundaries {
		dst = netproto.AppendTailBoundary(dst, uint32(b.Group), uint32(b.Tokens))
	}
	return dst
}
