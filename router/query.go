package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/fleet"
)

// Query asks who holds most of a prompt: by Hashes, or by Tokens if there are none and Tokens is not nil. All is borrowed.
type Query struct {
	ModelKey
	Engine    string // "": all
	BlockSize int    // that the caller takes for the model's; 0: any
	// Hashes are those of the prompt's whole blocks, 8 bytes or longer.
	Hashes coordinator.Hashes
	Tokens []int64
	Keys   *blockhash.ExtraKeys // of Tokens: adapter, salt
	// Loadable also asks the store, which may grant leases. NumTokens is the length of the prompt for it; 0: len(Tokens),
	// or that of the whole blocks.
	Loadable  bool
	NumTokens int64
	LastKnown bool // stale holders count for what they had last
	KVHints   bool // see Answer
}

func (q *Query) byHashes() bool { return q.Hashes.Len() > 0 || q.Tokens == nil }

// Answer is the answer to a Query. It is reused by the next one, and belongs to one goroutine at a time.
type Answer struct {
	BlockSize int
	fleet.Result
	LoadableTokens  int64           // -1 if that was not asked, or is unknown
	LoadableUnknown LoadableUnknown // why it is unknown, "" if it is not
	Unsure          []Unsure        // by Engine and Rank; also those that Holders lacks
	// KVHints, if they were asked, tell an engine to fetch from the first of Holders that is not stale and whose source
	// has a KVEndpoint; nil if none has. The caller owns them.
	KVHints *KVHints
}

// scratch is one query that is being answered, with the memory for it. It is reused by the next one of its model.
type scratch struct {
	model  *model
	fleet  *fleet.Fleet
	query  fleet.Query
	tokens tokenHashes
	hashes []byte
	// kvEndpoints are those of the model's sources; nil: no KVHints are asked.
	kvEndpoints map[fleet.ID]string
	asksStore   bool // Loadable is set, and the model has a pool
}

// HashBytes returns how many bytes of hashes are in memory while q is answered by its tokens, if Loadable or KVHints is set, or predicted;
// 0 if there is no such model.
func (s *Service) HashBytes(q *Query) int64 {
	m, err := s.find(q.ModelKey, nil)
	if err != nil {
		return 0
	}
	return int64(len(q.Tokens)/m.cfg.Fleet.BlockSize) * blockhash.DigestLen
}

// maxScratch bounds the hashes that a scratch keeps: 1 MiB are 32,768 blocks.
const maxScratch = 1 << 20

// beginQuery returns a scratch for a query about a model, by a caller that takes blocks to have a size; 0: any. It fails
// with ErrNoModel or ErrOtherBlock.
func (s *Service) beginQuery(key ModelKey, blockSize int) (*scratch, error) {
	m, err := s.find(key, nil)
	if err != nil {
		return nil, err
	}
	if err := m.checkBlockSize(blockSize); err != nil {
		return nil, err
	}
	sc := m.scratch.Get().(*scratch)
	sc.model, sc.fleet = m, m.fleet.Load()
	return sc, nil
}

// release gives a scratch back. It keeps nothing of the query.
func (sc *scratch) release() {
	sc.tokens.tokens, sc.tokens.keys, sc.fleet, sc.kvEndpoints = nil, nil, nil, nil
	if cap(sc.hashes) > maxScratch {
		sc.hashes = nil
	}
	sc.model.scratch.Put(sc)
}

// Query answers q. It fails with ErrNoModel and the other errors of this package, with fleet.ErrHashLen, as
// Pool.PeekPrompt does, or with the error of ctx, which bounds what the store is waited for. In the
// steady state a query by hashes allocates nothing.
func (s *Service) Query(ctx context.Context, q *Query, a *Answer) error {
	sc, err := s.beginQuery(q.ModelKey, q.BlockSize)
	if err != nil {
		return err
	}
	defer sc.release()
	a.BlockSize, a.LoadableTokens, a.LoadableUnknown, a.Holders = sc.model.cfg.Fleet.BlockSize, -1, "", a.Holders[:0]
	a.KVHints, sc.query.LastKnown = nil, q.LastKnown
	before := s.unsureOf(sc.model)
	if q.KVHints {
		sc.kvEndpoints = before.kvEndpoints
	}
	if sc.asksStore = q.Loadable; q.Loadable && sc.model.cfg.Pool == nil { // the engines' prefixes are known all the same
		a.LoadableUnknown, sc.asksStore = "the model has no pool", false
	}
	switch {
	case q.NumTokens < 0:
		return badField(ErrField, "num_tokens", "%d is negative; give the length of the prompt", q.NumTokens)
	case q.byHashes():
		err = sc.byHashes(ctx, q, a)
	case !sc.asksStore && before.allDiffer() && !sc.fleet.HasPredictions():
		err = fmt.Errorf("%w: model %q", ErrHashesDiffer, sc.model.cfg.Name)
	default:
		err = sc.byTokens(ctx, q, a)
	}
	if err != nil {
		return err
	}
	a.setUnsure(before, s.unsureOf(sc.model), q, sc.model)
	return nil
}

// byHashes answers a query with hashes, or with nothing.
func (sc *scratch) byHashes(ctx context.Context, q *Query, a *Answer) error {
	if q.Hashes.Len() > 0 {
		if err := sc.query.Begin(sc.fleet, q.Hashes.HashLen()); err != nil {
			return err
		}
		sc.query.Add(q.Hashes.Bytes())
		sc.end(q, q.Hashes, a)
	}
	if !sc.asksStore {
		return ctx.Err()
	}
	return sc.load(ctx, cmp.Or(q.NumTokens, int64(q.Hashes.Len())*int64(a.BlockSize)), q.Hashes, a)
}

// byTokens answers a query with tokens. They are hashed in pieces, until no holder has more, or to the end if the store
// is asked.
func (sc *scratch) byTokens(ctx context.Context, q *Query, a *Answer) error {
	t := &sc.tokens
	if err := t.begin(&sc.model.cfg, q, false); err != nil {
		return err
	}
	if err := sc.query.Begin(sc.fleet, t.hashLen); err != nil {
		return err
	}
	keep := sc.asksStore && t.sglang == nil // vLLM's store has these hashes, too
	sc.hashes = sc.hashes[:0]
	for wanted := true; t.left() > 0 && (wanted || keep); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !keep && !q.KVHints {
			sc.hashes = sc.hashes[:0]
		}
		from := len(sc.hashes)
		var err error
		if sc.hashes, err = t.next(sc.hashes, piece); err != nil {
			return err
		}
		wanted = wanted && sc.query.Add(sc.hashes[from:])
		cpushare.Yield(ctx)
	}
	hashes := coordinator.NewHashes(sc.hashes, t.hashLen)
	sc.end(q, hashes, a)
	if !sc.asksStore {
		return nil
	}
	if !keep {
		var err error
		if hashes, err = sc.hash(ctx, q, true); err != nil {
			return err
		}
	}
	numTokens := cmp.Or(q.NumTokens, int64(len(q.Tokens)))
	switch {
	case t.sglang != nil: // leaves the last token out before it makes pairs
		numTokens -= int64(t.behind)
	case t.behind > 0:
		// The last block may have no hash, as it depends on tokens behind the prompt. Nothing of it can be loaded.
		numTokens = min(numTokens, int64(hashes.Len())*int64(t.size))
	}
	return sc.load(ctx, numTokens, hashes, a)
}

// end sets the holders of a, and the hints with them. hashes are those of the prompt, as far as holders may have them; the
// caller of a query by tokens without hints need not give them.
func (sc *scratch) end(q *Query, hashes coordinator.Hashes, a *Answer) {
	sc.query.End(&a.Result)
	if q.Engine != "" {
		a.keepEngine(q.Engine)
	}
	if q.KVHints {
		a.KVHints = sc.kvHints(hashes, a)
	}
}

// hash returns the hashes of all tokens of q, as holders have them or, with storage, as the store has. They are borrowed
// from the scratch.
func (sc *scratch) hash(ctx context.Context, q *Query, storage bool) (coordinator.Hashes, error) {
	t := &sc.tokens
	if err := t.begin(&sc.model.cfg, q, storage); err != nil {
		return coordinator.Hashes{}, err
	}
	for sc.hashes = sc.hashes[:0]; t.left() > 0; {
		if err := ctx.Err(); err != nil {
			return coordinator.Hashes{}, err
		}
		var err error
		if sc.hashes, err = t.next(sc.hashes, piece); err != nil {
			return coordinator.Hashes{}, err
		}
		cpushare.Yield(ctx)
	}
	return coordinator.NewHashes(sc.hashes, t.hashLen), nil
}

// load asks the store how much of a prompt it can load.
func (sc *scratch) load(ctx context.Context, numTokens int64, hashes coordinator.Hashes, a *Answer) error {
	if err := sc.model.checkHashLen(hashes.HashLen()); err != nil {
		return fielderror.Below("seq_hashes", err)
	}
	hit, err := sc.model.cfg.Pool.PeekPrompt(ctx, numTokens, hashes)
	why, unknown := errors.AsType[LoadableUnknown](err)
	if err != nil && !unknown {
		return err
	}
	// A store that is late can load 0, or it is not known. If it was late because ctx has ended, the caller gets that error.
	if err := ctxerr.Of(ctx); err != nil {
		return err
	}
	if a.LoadableUnknown = why; !unknown {
		a.LoadableTokens = hit.Tokens
	}
	return nil
}

// shortHashLen is the length of hashes that are 64 bits of a digest, in bytes.
const shortHashLen = 8

// checkHashLen refuses hashes of n bytes that the keys of the model's store cannot be made of: it would answer 0.
// 0 is the length of no hashes.
func (m *model) checkHashLen(n int) error {
	if m.cfg.Pool == nil || n == 0 {
		return nil
	}
	switch want := m.cfg.Pool.Pool().HashLen; {
	case n == want:
		return nil
	case n <= shortHashLen:
		return fmt.Errorf("%w: model %q", ErrWholeHash, m.cfg.Name)
	case want != 0:
		return fmt.Errorf("%w: %d bytes; model %q has %d", ErrHashLen, n, m.cfg.Name, want)
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
