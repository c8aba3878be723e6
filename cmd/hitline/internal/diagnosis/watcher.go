package diagnosis

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// Watcher compares the pool with the store while a server runs. It logs one warning when
// it has found a problem, and stops comparing.
//
// It samples keys until the pool has some. It compares prompts of lookups that miss until
// a lookup hits. If stored blocks can contradict pool.groups, it also compares prompts
// that hit, until the blocks of one confirm the order of the groups.
type Watcher struct {
	*comparer
	store  *Store
	logger *slog.Logger

	prompts        chan promptPrefix // from Observe to run; holds one
	acceptsPrompt  atomic.Bool       // Observe may pass on a prompt, and run sets it again after a pause
	hadHit         atomic.Bool       // a lookup has hit
	hitsConfirmed  atomic.Bool       // prompts that hit need not be compared any more
	sizeMismatches atomic.Int32      // lookups in a row that do not fit pool.hash_block_size
	poolKeys       keySample         // of the last sample; used by run only
}

const (
	// compareTimeout bounds one comparison with the store.
	compareTimeout = 10 * time.Second
	// recheckDelay is the time until keys with a problem are sampled again. An engine
	// that has just started may not have stored on all its ranks.
	recheckDelay = time.Second
	// The pauses between comparisons without a problem double, up to a maximum.
	minKeysPause, maxKeysPause     = 5 * time.Second, 10 * time.Minute
	minPromptPause, maxPromptPause = 250 * time.Millisecond, time.Minute
	// maxHitPause is the longest pause between prompts after a lookup has hit. Then a
	// wrong configuration is unlikely.
	maxHitPause = 10 * time.Minute
	// sizeMismatchRun is how many lookups in a row must not fit pool.hash_block_size. A
	// single one may come from an engine that sends more hashes than tokens.
	sizeMismatchRun = 4
)

// NewWatcher returns a watcher that compares the pool of rules with store. It does
// nothing until Start.
func NewWatcher(rules *coordinator.Coordinator, store *Store, logger *slog.Logger) *Watcher {
	w := &Watcher{comparer: newComparer(rules, store.Layout), store: store, logger: logger, prompts: make(chan promptPrefix, 1)}
	w.acceptsPrompt.Store(true)
	w.hitsConfirmed.Store(!w.excludesAny())
	return w
}

// Observe receives the result of a lookup. It copies what it keeps and does not wait.
// It is safe for concurrent use, also before Start and after stop.
func (w *Watcher) Observe(event lookup.LookupEvent) {
	switch {
	case !w.fitsBlockSize(event.NumTokens, event.NumHashes):
		if w.sizeMismatches.Add(1)%sizeMismatchRun == 0 {
			w.pass(event) // also if it hit: the hit may be too long
		}
		return
	case w.sizeMismatches.Load() != 0:
		w.sizeMismatches.Store(0)
	}
	hit := w.hadHit.Load()
	if !hit && event.Hit.Tokens > 0 {
		w.hadHit.Store(true)
		hit = true
	}
	if (!hit || !w.hitsConfirmed.Load()) && w.acceptsPrompt.Load() && w.acceptsPrompt.CompareAndSwap(true, false) {
		w.pass(event)
	}
}

// pass passes a prompt on to run, unless another one waits already.
func (w *Watcher) pass(event lookup.LookupEvent) {
	select {
	case w.prompts <- newPromptPrefix(event.NumTokens, event.NumHashes, event.Hashes):
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
		w.run(ctx)
	}()
	return func() { cancel(); <-done }
}

// run compares until it has logged a problem or ctx ends.
func (w *Watcher) run(ctx context.Context) {
	keysPause, promptPause := minKeysPause, minPromptPause
	keysTimer, promptTimer := time.NewTimer(0), time.NewTimer(0)
	defer keysTimer.Stop()
	defer promptTimer.Stop()
	if w.store.Sample == nil {
		keysTimer.Stop()
	}
	promptTimer.Stop()
	for {
		var f Findings
		select {
		case <-ctx.Done():
			return
		case <-keysTimer.C:
			if f = w.examineKeys(ctx); len(w.poolKeys.keys) == 0 && len(f.Problems) == 0 {
				keysTimer.Reset(keysPause)
				keysPause = min(2*keysPause, maxKeysPause)
			}
		case p := <-w.prompts:
			f = w.examinePrompt(ctx, p)
			promptTimer.Reset(promptPause)
			maxPause := maxPromptPause
			if w.hadHit.Load() {
				maxPause = maxHitPause
			}
			promptPause = min(2*promptPause, maxPause)
		case <-promptTimer.C:
			w.acceptsPrompt.Store(true)
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
	}
	return f
}

// examinePrompt compares the stored blocks of a prompt.
func (w *Watcher) examinePrompt(ctx context.Context, p promptPrefix) (f Findings) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	if !p.compareHashLength(w.poolKeys, &f) || !w.compareBlockSize(p, &f) {
		return f
	}
	// Before the first hit an absent block makes the configuration doubtful. After it the
	// block was more likely evicted.
	blocks, err := w.comparePrompt(ctx, w.store, p, !w.hadHit.Load(), &f)
	if err != nil {
		w.logger.Debug("a prompt's blocks were not looked for", "backend", w.store.Backend, "error", err.Error())
		return f
	}
	if w.confirmsOrder(blocks) {
		w.hitsConfirmed.Store(true)
	}
	return f
}
