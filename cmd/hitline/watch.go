package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/lookup"
)

// watcher looks, while serve runs, whether the blocks in the store are those of the
// configured pool, and logs one warning if they are not. It looks at some keys, until
// there are any, and at lookups without a hit, until one has a hit. If stored blocks can
// contradict pool.groups it also looks at lookups with a hit, until one has settled that
// they do not.
type watcher struct {
	expected
	store  *store
	logger *slog.Logger

	prompts chan prompt
	wants   atomic.Bool  // a prompt
	hit     atomic.Bool  // a lookup had a hit
	settled atomic.Bool  // the blocks of a prompt are those of pool.groups, or cannot tell
	misfits atomic.Int32 // lookups in a row whose hash_block_size is another
	ours    sample       // the pool's keys, once they were looked at
}

const (
	// lookTime bounds one look at the store.
	lookTime = 10 * time.Second
	// sureAfter is when what was found is looked at again before it is told: an engine
	// that has just begun may not have stored on all its ranks.
	sureAfter = time.Second
	// Between looks that tell nothing the pauses double.
	firstKeys, lastKeys     = 5 * time.Second, 10 * time.Minute
	firstPrompt, lastPrompt = 250 * time.Millisecond, time.Minute
	// misfitsTell is how many prompts in a row show another hash_block_size.
	misfitsTell = 4
)

func newWatcher(e expected, s *store, logger *slog.Logger) *watcher {
	w := &watcher{expected: e, store: s, logger: logger, prompts: make(chan prompt, 1)}
	w.wants.Store(true)
	w.settled.Store(!e.excludesAny())
	return w
}

// asked takes note of a lookup. It is called on the goroutines that ask the store.
func (w *watcher) asked(a lookup.LookupEvent) {
	switch {
	case !w.fitsBlockSize(a.NumTokens, a.NumHashes):
		if w.misfits.Add(1)%misfitsTell == 0 {
			w.offer(a) // hit or no hit: it may well be too long
		}
		return
	case w.misfits.Load() != 0:
		w.misfits.Store(0)
	}
	hit := w.hit.Load()
	if !hit && a.Hit.Tokens > 0 {
		w.hit.Store(true)
		hit = true
	}
	if (!hit || !w.settled.Load()) && w.wants.Load() && w.wants.CompareAndSwap(true, false) {
		w.offer(a)
	}
}

// offer hands a prompt to run, if it is at leisure.
func (w *watcher) offer(a lookup.LookupEvent) {
	select {
	case w.prompts <- promptOf(a):
	default:
	}
}

// start runs the watcher beside the caller, until what it returns is called.
func (w *watcher) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	return func() { cancel(); <-done }
}

// run looks until something is told, or until there is nothing more to look for.
func (w *watcher) run(ctx context.Context) {
	keysPause, promptPause := firstKeys, firstPrompt
	keys, again := time.NewTimer(0), time.NewTimer(0)
	defer keys.Stop()
	defer again.Stop()
	if w.store.sample == nil {
		keys.Stop()
	}
	again.Stop()
	for {
		var f findings
		select {
		case <-ctx.Done():
			return
		case <-keys.C:
			if f = w.lookAtKeys(ctx); len(w.ours.keys) == 0 && len(f.Problems) == 0 {
				keys.Reset(keysPause)
				keysPause = min(2*keysPause, lastKeys)
			}
		case p := <-w.prompts:
			f = w.lookAtPrompt(ctx, p)
			again.Reset(promptPause)
			longest := lastPrompt
			if w.hit.Load() {
				longest = lastKeys
			}
			promptPause = min(2*promptPause, longest)
		case <-again.C:
			w.wants.Store(true)
		}
		if len(f.Problems) > 0 && ctx.Err() == nil {
			w.tell(f)
			return
		}
	}
}

// tell logs what was found.
func (w *watcher) tell(f findings) {
	w.logger.Warn("the configured pool is not that of the blocks in the store: hits are missed, or wrong",
		"backend", w.store.Name(), "problem", strings.Join(f.Problems, "; "), "help", "hitline doctor")
}

// lookAtKeys compares a sample of the store's keys, twice before anything is told.
func (w *watcher) lookAtKeys(ctx context.Context) findings {
	first := w.compareKeys(ctx)
	if len(first.Problems) == 0 {
		return first
	}
	select {
	case <-time.After(sureAfter):
	case <-ctx.Done():
		return findings{}
	}
	second := w.compareKeys(ctx)
	second.Problems = slices.DeleteFunc(second.Problems, func(p string) bool { return !slices.Contains(first.Problems, p) })
	return second
}

// compareKeys compares a sample once. A store that does not answer is told elsewhere.
func (w *watcher) compareKeys(ctx context.Context) (f findings) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, err := w.store.sample(ctx)
	switch {
	case errors.Is(err, backend.ErrReply): // not the port that lists them
		f.problem("keys could not be looked at: %v", err)
		return f
	case err != nil:
		w.logger.Debug("the store's keys were not looked at", "backend", w.store.Name(), "error", err.Error())
		return f
	}
	w.compare(s, &f)
	w.ours = s.of(poolName(w.rules))
	return f
}

// lookAtPrompt compares a lookup.
func (w *watcher) lookAtPrompt(ctx context.Context, p prompt) (f findings) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if !p.compareLength(w.ours, &f) || !w.compareBlockSize(p, &f) {
		return f
	}
	// Before the first hit the configuration is in doubt, after it an absent block is more
	// likely evicted.
	b, err := w.comparePrompt(ctx, w.store, p, !w.hit.Load(), &f)
	if err != nil {
		w.logger.Debug("a prompt's blocks were not looked for", "backend", w.store.Name(), "error", err.Error())
		return f
	}
	if w.settles(b) {
		w.settled.Store(true)
	}
	return f
}
