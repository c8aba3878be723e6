package diagnosis

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup"
)

// Watcher compares the pool with the store while a server runs. It logs one warning when
// it has found a problem, and stops comparing.
//
// It samples keys until the pool has some, and compares the numbers of tokens and hashes of
// lookups. It never asks the store about blocks.
type Watcher struct {
	*comparer
	store  *Store
	logger *slog.Logger

	prompts        chan promptLength     // from Observe to run; holds one
	poolKeys       keySample             // of the last sample; used by run only
	hashLengths    atomic.Pointer[[]int] // of poolKeys, nil before there are any
	hadHit         atomic.Bool           // a lookup has hit, so its hashes are those of the store
	sizeMismatches atomic.Int32          // lookups in a row that do not fit pool.hash_block_size
}

const (
	// compareTimeout bounds one comparison with the store.
	compareTimeout = 10 * time.Second
	// recheckDelay is the time until keys with a problem are sampled again. An engine
	// that has just started may not have stored on all its ranks.
	recheckDelay = time.Second
	// The pauses between samples without keys double, up to a maximum.
	minKeysPause, maxKeysPause = 5 * time.Second, 10 * time.Minute
	// sizeMismatchRun is how many lookups in a row must not fit pool.hash_block_size. A
	// single one may come from an engine that sends more hashes than tokens.
	sizeMismatchRun = 4
)

// NewWatcher returns a watcher that compares the pool of rules with store. It does
// nothing until Start.
func NewWatcher(rules *coordinator.Coordinator, store *Store, logger *slog.Logger) *Watcher {
	return &Watcher{comparer: newComparer(rules, store.Layout), store: store, logger: logger, prompts: make(chan promptLength, 1)}
}

// Observe receives the result of a lookup. It does not wait. It is safe for concurrent use,
// also before Start and after stop.
func (w *Watcher) Observe(event lookup.LookupEvent) {
	switch {
	case event.Hashes.Len() == 0:
	case !w.fitsBlockSize(tokensOf(event), event.Hashes.Len()):
		if w.sizeMismatches.Add(1)%sizeMismatchRun == 0 {
			w.pass(event) // also if it hit: the hit may be too long
		}
		return
	case event.Hit.Tokens > event.Hashes.Start():
		if !w.hadHit.Load() {
			w.hadHit.Store(true)
		}
	case !w.hadHit.Load():
		if lengths := w.hashLengths.Load(); lengths != nil && !slices.Contains(*lengths, event.Hashes.HashLen()) {
			w.pass(event)
		}
	}
	if w.sizeMismatches.Load() != 0 {
		w.sizeMismatches.Store(0)
	}
}

// tokensOf returns the tokens that the hashes of a lookup are about: those from its start on.
func tokensOf(event lookup.LookupEvent) int64 { return event.NumTokens - event.Hashes.Start() }

// pass passes a lookup on to run, unless another one waits already.
func (w *Watcher) pass(event lookup.LookupEvent) {
	select {
	case w.prompts <- promptLength{tokens: tokensOf(event), numHashes: event.Hashes.Len(), hashLen: event.Hashes.HashLen()}:
	default:
	}
}

// Start starts the watcher's goroutine. stop ends it and waits for it; the caller must
// call stop once. Start may be called once.
func (w *Watcher) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := requesterror.Run(func() { w.run(ctx) }); err != nil {
			w.logger.Error("the blocks in the store are not compared any more", "backend", w.store.Backend, "error", err)
		}
	}()
	return func() { cancel(); <-done }
}

// run compares until it has logged a problem or ctx ends.
func (w *Watcher) run(ctx context.Context) {
	pause, timer := minKeysPause, time.NewTimer(0)
	defer timer.Stop()
	if w.store.Sample == nil {
		timer.Stop()
	}
	for {
		var f Findings
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			f = w.examineKeys(ctx)
			if len(w.poolKeys.keys) == 0 {
				timer.Reset(pause)
				pause = min(2*pause, maxKeysPause)
			}
		case p := <-w.prompts:
			f = w.examinePrompt(p)
		}
		if len(f.Problems) > 0 && ctx.Err() == nil {
			w.logProblems(f)
			return
		}
	}
}

func (w *Watcher) logProblems(f Findings) {
	message := "the configured pool is not that of the blocks in the store: hits are missed, or wrong"
	if f.badReply && len(f.Problems) == 1 {
		message = "the configured pool is not compared with the blocks in the store"
	}
	w.logger.Warn(message,
		"backend", w.store.Backend, "problem", strings.Join(f.Problems, "; "), "help", "hitline doctor")
}

// examineKeys compares a sample of the store's keys. It returns a problem only if a second
// sample has it too.
func (w *Watcher) examineKeys(ctx context.Context) Findings {
	first := w.compareKeys(ctx)
	if len(first.Problems) == 0 {
		return first
	}
	select {
	case <-time.After(recheckDelay):
	case <-ctx.Done():
		return Findings{}
	}
	second := w.compareKeys(ctx)
	second.Problems = slices.DeleteFunc(second.Problems, func(p string) bool { return !slices.Contains(first.Problems, p) })
	return second
}

// compareKeys compares one sample. A store that does not answer is no problem here: the
// lookups log it.
func (w *Watcher) compareKeys(ctx context.Context) (f Findings) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	_, ofPool, err := w.compareStoreKeys(ctx, w.store, &f)
	if err != nil {
		w.logger.Debug("the store's keys were not looked at", "backend", w.store.Backend, "error", err.Error())
		return f
	}
	if ofPool != nil {
		w.poolKeys = *ofPool
		if lengths := ofPool.hashLengths(); len(lengths) > 0 {
			w.hashLengths.Store(&lengths)
		}
	}
	return f
}

// examinePrompt compares the numbers of tokens and hashes of a lookup.
func (w *Watcher) examinePrompt(p promptLength) (f Findings) {
	if p.compareHashLength(w.poolKeys, &f) {
		w.compareBlockSize(p, &f)
	}
	return f
}
