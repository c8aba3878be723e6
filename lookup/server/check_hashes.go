package server

import (
	"fmt"

	"github.com/hitline/hitline/netproto"
)

// checkHashes returns an error if there is no pool p, if a lookup or a renew has more hashes than
// Limits.MaxHashes, if hashes have not the length of the pool's, or if no lookup begins as the
// request says.
func (p *pool) checkHashes(q *netproto.Request, limits *Limits) error {
	if p == nil {
		return errNoPool
	}
	op, numHashes := &operations[q.Tag], int64(q.NumHashes)
	if op.from {
		numHashes += int64(q.Start) / int64(p.hashBlock)
	}
	if limit := limits.MaxHashes; (op.lookup || q.Tag == netproto.TagRenew) && numHashes > int64(limit) {
		return &limitError{text: fmt.Sprintf("%d hashes, at most %d", numHashes, limit), limit: int64(limit)}
	}
	if want := p.hashLen; want != 0 && q.NumHashes > 0 && q.HashLen != want {
		return fmt.Errorf("%w: hash_len %d, the pool has %d", errHashLen, q.HashLen, want)
	}
	if !op.from {
		return nil
	}
	return p.checkStart(q, numHashes)
}

// checkStart returns an error if no lookup begins as the request says. A lookup_from must not have
// more hashes, with those before its start, than its tokens.
func (p *pool) checkStart(q *netproto.Request, numHashes int64) error {
	if err := p.service.Coordinator().CheckStart(int64(q.Start), int64(q.NumTokens)); err != nil {
		return err
	}
	if most := int64(q.NumTokens) / int64(p.hashBlock); q.Tag == netproto.TagLookupFrom && numHashes > most {
		before := int64(q.Start) / int64(p.hashBlock)
		err := fmt.Errorf("%w: %d tokens have %d from start_token %d on, and there are %d",
			errTooManyHashes, q.NumTokens, most-before, q.Start, q.NumHashes)
		if before > 0 {
			err = fmt.Errorf("%w: if they are the whole prompt's, leave out the first %d", err, before)
		}
		return err
	}
	return nil
}
