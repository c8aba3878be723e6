package diagnosis

import (
	"context"
	"errors"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
)

// Prompt is a prompt to look for in a store. Without hashes it is no prompt.
type Prompt struct {
	Tokens int64
	Hashes coordinator.Hashes // of all its blocks
}

// Examine compares the pool of rules with the contents of store. Without rules it looks at the server alone. It changes
// nothing there. It returns an error only if the store cannot be reached; the report then has what is known without a
// connection.
func Examine(ctx context.Context, rules *coordinator.Coordinator, store *Store, prompt Prompt) (*Report, error) {
	e := &examination{store: store, report: newReport(store.Backend, rules)}
	if rules != nil {
		e.comparer = newComparer(rules)
	} else {
		e.report.addNote("no pool is configured, so keys were not compared: give --pool and the name of one that a running server has, or configure pool")
	}
	return e.report, e.run(ctx, prompt)
}

// examination is one run of Examine.
type examination struct {
	*comparer // nil without a pool
	store     *Store
	report    *Report
}

// maxRounds is how many calls of the store, one after the other, a lookup makes at most.
const maxRounds = 4

// run fills in the report. Its error means that the store cannot be reached.
func (e *examination) run(ctx context.Context, prompt Prompt) error {
	r := e.report
	r.Address = e.store.Address
	section := "backend." + e.store.Backend
	info, err := e.store.Info(ctx)
	if err != nil {
		if !errors.Is(err, backend.ErrReply) && !e.store.Reachable(ctx) {
			return err
		}
		r.addProblem("%v; see %s", err, section)
		return nil
	}
	r.Server, r.Mode, r.Nodes, r.RoundTrip = info.Server, info.Mode, info.Nodes, info.RoundTrip.Microseconds()
	if timeout := e.store.Timeout; maxRounds*info.RoundTrip > timeout {
		r.addProblem("a round trip of %v does not fit a lookup into %v: raise %s.timeout, or run hitline nearer to the store", info.RoundTrip.Round(time.Microsecond), timeout, section)
	}
	if info.Replica {
		r.addNote("%s is a replica: lookups work, and a store or an evict is refused", r.Address)
	}
	if e.comparer == nil {
		return nil
	}
	if e.pool.ModelName == "" {
		r.addProblem("pool.model_name is empty, which no engine's is: set it to the engine's model")
	}
	e.examinePrompt(ctx, prompt, e.examineKeys(ctx))
	return nil
}

// examineKeys compares a sample of the store's keys. It returns those of the pool.
func (e *examination) examineKeys(ctx context.Context) (poolKeys keySample) {
	r := e.report
	if e.store.Sample == nil {
		r.addNote("keys were not looked at: name the port of the masters that lists them in backend.mooncake.admin, or compare the pattern with a key of its /get_all_keys")
		return poolKeys
	}
	sampled, ofPool, err := e.compareStoreKeys(ctx, e.store, &r.Findings)
	if err != nil {
		r.addNote("keys were not looked at: %v", err)
	}
	r.Sampled = sampled
	if ofPool != nil {
		poolKeys = *ofPool
	}
	return poolKeys
}

// examinePrompt compares the length of a prompt, if there is one, and looks it up.
func (e *examination) examinePrompt(ctx context.Context, prompt Prompt, poolKeys keySample) {
	f := &e.report.Findings
	p := promptLength{prompt.Tokens, prompt.Hashes.Len(), prompt.Hashes.HashLen()}
	if p.numHashes > 0 && p.compareHashLength(poolKeys, f) && e.compareBlockSize(p, f) {
		e.examineHit(ctx, prompt)
	}
}
