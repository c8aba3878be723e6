package router

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/router/fleet"
)

// Query asks who holds most of a prompt: by Hashes, or by Tokens if there are none. All is borrowed.
type Query struct {
	ModelKey
	Engine    string // "": all
	BlockSize int    // that the caller takes for the model's; 0: any
	// Hashes are those of the prompt's whole blocks, 8 bytes or longer.
	Hashes coordinator.Hashes
	Tokens []int64
	Keys   *blockhash.ExtraKeys // of Tokens: adapter, salt
	// Loadable also asks the store, which grants leases. NumTokens is the length of the prompt for it; 0: len(Tokens),
	// or that of the whole blocks.
	Loadable  bool
	NumTokens int64
}

// Answer is the answer to a Query. It is reused by the next one, and belongs to one goroutine at a time.
type Answer struct {
	BlockSize int
	fleet.Result
	LoadableTokens int64 // -1 if that was not asked
}

// scratch is what a query needs. It is reused by the next one of its model.
type scratch struct {
	query  fleet.Query
	tokens tokenHashes
	hashes []byte
}

// maxScratch bounds the hashes that a scratch keeps: 1 MiB are 32,768 blocks.
const maxScratch = 1 << 20

// release gives a scratch back. It keeps nothing of the query.
func (m *model) release(sc *scratch) {
	sc.tokens.tokens, sc.tokens.keys = nil, nil
	if cap(sc.hashes) > maxScratch {
		sc.hashes = nil
	}
	m.scratch.Put(sc)
}

// prompt is one query that is being answered.
type prompt struct {
	state   *modelState
	scratch *scratch
	answer  *Answer
}

// Query answers q. It fails with ErrNoModel and the other errors of this package, with fleet.ErrHashLen, as
// Pool.LookupPrompt does, or with the error of ctx, which bounds what the store is waited for. In the
// steady state a query by hashes allocates nothing.
func (s *Service) Query(ctx context.Context, q *Query, a *Answer) error {
	m, state, err := s.findState(q.ModelKey, q.BlockSize)
	if err != nil {
		return err
	}
	a.BlockSize, a.LoadableTokens, a.Holders = state.cfg.Fleet.BlockSize, -1, a.Holders[:0]
	sc := m.scratch.Get().(*scratch)
	defer m.release(sc)
	p := prompt{state: state, scratch: sc, answer: a}
	switch {
	case q.Loadable && state.cfg.Pool == nil:
		return fmt.Errorf("%w: model %q", ErrNoPool, state.cfg.Name)
	case q.NumTokens < 0:
		return badField("num_tokens", "%d is negative", q.NumTokens)
	}
	if q.Hashes.Len() > 0 || len(q.Tokens) == 0 {
		err = p.byHashes(ctx, q)
	} else {
		err = p.byTokens(ctx, q)
	}
	if err == nil && q.Engine != "" {
		a.keepEngine(q.Engine)
	}
	return err
}

// byHashes answers a query with hashes, or with nothing.
func (p *prompt) byHashes(ctx context.Context, q *Query) error {
	if q.Hashes.Len() > 0 {
		if err := p.scratch.query.Begin(p.state.fleet, q.Hashes.HashLen()); err != nil {
			return err
		}
		p.scratch.query.Add(q.Hashes.Bytes())
		p.scratch.query.End(&p.answer.Result)
	}
	if !q.Loadable {
		return ctx.Err()
	}
	return p.load(ctx, cmp.Or(q.NumTokens, int64(q.Hashes.Len())*int64(p.answer.BlockSize)), q.Hashes)
}

// byTokens answers a query with tokens. They are hashed in pieces, until no holder has more, or to the end if the store
// is asked.
func (p *prompt) byTokens(ctx context.Context, q *Query) error {
	t := &p.scratch.tokens
	if err := t.begin(p.state, q, false); err != nil {
		return err
	}
	if err := p.scratch.query.Begin(p.state.fleet, t.hashLen); err != nil {
		return err
	}
	// The store of vLLM has the hashes that events have 64 bits of, so all are kept for it.
	keep := q.Loadable && t.vllm != nil && t.sglang == nil
	p.scratch.hashes = p.scratch.hashes[:0]
	wanted := true
	for t.left() > 0 && (wanted || keep) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !keep {
			p.scratch.hashes = p.scratch.hashes[:0]
		}
		from := len(p.scratch.hashes)
		var err error
		if p.scratch.hashes, err = t.next(p.scratch.hashes, piece); err != nil {
			return err
		}
		wanted = wanted && p.scratch.query.Add(p.scratch.hashes[from:])
	}
	p.scratch.query.End(&p.answer.Result)
	if !q.Loadable {
		return nil
	}
	hashes := coordinator.NewHashes(p.scratch.hashes, t.hashLen)
	if !keep {
		var err error
		if hashes, err = p.hash(q, true); err != nil {
			return err
		}
	}
	numTokens := cmp.Or(q.NumTokens, int64(len(q.Tokens)))
	if t.behind > 0 {
		// The last block may have no hash, as it depends on tokens behind the prompt. Nothing of it can be loaded.
		numTokens = min(numTokens, int64(hashes.Len())*int64(t.size))
	}
	return p.load(ctx, numTokens, hashes)
}

// load asks the store how much of a prompt it can load.
func (p *prompt) load(ctx context.Context, numTokens int64, hashes coordinator.Hashes) error {
	if err := p.state.cfg.checkHashLen(hashes.HashLen()); err != nil {
		return err
	}
	hit, err := p.state.cfg.Pool.LookupPrompt(ctx, numTokens, hashes)
	if err != nil {
		return err
	}
	// LookupPrompt answers 0 for a store that is late. If it was late because ctx has ended, the caller gets that error.
	if err := ctxerr.Of(ctx); err != nil {
		return err
	}
	p.answer.LoadableTokens = hit.Tokens
	return nil
}

// shortHashLen is the length of hashes that are 64 bits of a digest, in bytes.
const shortHashLen = 8

// checkHashLen refuses hashes of n bytes that the keys of the model's store cannot be made of: it would answer 0.
// 0 is the length of no hashes. The model has a Pool.
func (c *Model) checkHashLen(n int) error {
	want := c.Pool.Pool().HashLen
	switch {
	case n == 0 || n == want:
		return nil
	case n <= shortHashLen:
		return fmt.Errorf("%w: model %q", ErrWholeHash, c.Name)
	case want != 0:
		return fmt.Errorf("%w: %d bytes; model %q has %d", ErrHashLen, n, c.Name, want)
	}
	return nil
}

// keepEngine removes the holders of other engines. It swaps them to the end, so that their memory is reused.
func (a *Answer) keepEngine(engine string) {
	n := 0
	for i := range a.Holders {
		if a.Holders[i].Engine == engine {
			a.Holders[n], a.Holders[i] = a.Holders[i], a.Holders[n]
			n++
		}
	}
	a.Holders = a.Holders[:n]
}
