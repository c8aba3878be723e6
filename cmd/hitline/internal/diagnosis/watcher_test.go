package diagnosis

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// watcherOf returns a watcher of a pool, and the keys of its store.
func watcherOf(t *testing.T, pool coordinator.Pool) (*Watcher, keySet) {
	t.Helper()
	keys := keySet{}
	return NewWatcher(comparerOf(t, pool).rules, keys.store(), slog.New(slog.DiscardHandler)), keys
}

// passed returns the prompt that Observe has passed on.
func passed(t *testing.T, w *Watcher) promptPrefix {
	t.Helper()
	require.Len(t, w.prompts, 1)
	return <-w.prompts
}

// hitAndMiss returns a lookup of a prompt with a hit, and the same without.
func hitAndMiss(chain [][]byte) (hit, miss lookup.LookupEvent) {
	hit, miss = eventOf(chain), eventOf(chain)
	hit.Hit.Tokens = hit.NumTokens
	return hit, miss
}

// A watcher compares prompts that hit until their blocks confirm the order of the groups.
func TestWatcherConfirms(t *testing.T) {
	chain := randomChain()
	hit, _ := hitAndMiss(chain)

	w, _ := watcherOf(t, poolOf(full16))
	w.Observe(hit)
	assert.Empty(t, w.prompts, "there is no other order")
	w, _ = watcherOf(t, poolOf(window32, full16))
	w.Observe(hit)
	assert.Empty(t, w.prompts, "groups that are stored alike")

	w, keys := watcherOf(t, poolOf(blocks64))
	w.Observe(hit)
	assert.Empty(t, w.examinePrompt(t.Context(), passed(t, w)).Problems)
	assert.False(t, w.hitsConfirmed.Load(), "nothing was stored, and blocks may contradict the block size")
	keys.storePrompt(t, w.rules, chain, hit.NumTokens, never)
	assert.Empty(t, w.examinePrompt(t.Context(), prefixOf(chain)).Problems)
	assert.True(t, w.hitsConfirmed.Load())

	w, _ = watcherOf(t, coordinator.Pool{ModelName: "m", Revision: coordinator.Revision20260817, TPSize: 2, NumKVHead: 1, Groups: []coordinator.Group{full16, mamba16}})
	assert.False(t, w.hitsConfirmed.Load(), "groups on other ranks")
}

// After a hit absent blocks are no problem, before it they are.
func TestWatcherAfterHit(t *testing.T) {
	chain := randomChain()
	hit, miss := hitAndMiss(chain)
	storeEvery8th := func(w *Watcher, keys keySet) { // as if of blocks of 128 tokens
		for _, i := range []int{7, 15, 23} {
			keys[string(w.rules.AppendKey(nil, 1, 0, hit.Hashes.At(i)))] = true
		}
	}
	w, keys := watcherOf(t, poolOf(window32, blocks64))
	storeEvery8th(w, keys)
	w.Observe(miss)
	assert.Len(t, w.examinePrompt(t.Context(), passed(t, w)).Problems, 1)

	w, keys = watcherOf(t, poolOf(window32, blocks64))
	w.Observe(hit)
	w.Observe(hit)
	p := passed(t, w)
	assert.Empty(t, w.examinePrompt(t.Context(), p).Problems)
	assert.False(t, w.hitsConfirmed.Load(), "nothing was stored")
	storeEvery8th(w, keys)
	assert.Empty(t, w.examinePrompt(t.Context(), p).Problems, "the others may have been evicted")
	assert.False(t, w.hitsConfirmed.Load(), "blocks of one group")
	keys[string(w.rules.AppendKey(nil, 0, 0, hit.Hashes.At(7)))] = true
	assert.Empty(t, w.examinePrompt(t.Context(), p).Problems)
	assert.False(t, w.hitsConfirmed.Load(), "blocks that either group may have")
	w.acceptsPrompt.Store(true)
	w.Observe(miss)
	p = passed(t, w)
	keys.storePrompt(t, w.rules, chain, hit.NumTokens, never)
	assert.Empty(t, w.examinePrompt(t.Context(), p).Problems)
	assert.True(t, w.hitsConfirmed.Load())
	w.acceptsPrompt.Store(true)
	w.Observe(hit)
	w.Observe(miss)
	assert.Empty(t, w.prompts, "confirmed")
}

// A watcher samples keys until there are some, and logs a problem once it has seen it twice.
func TestWatcherSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var sampled []time.Duration // since the start
		begun := time.Now()
		store := keySet{}.store()
		store.Sample = func(context.Context) (Sample, error) {
			sampled = append(sampled, time.Since(begun))
			if len(sampled) < 3 {
				return Sample{Complete: true}, nil
			}
			return Sample{Keys: []string{"other@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@00"}, Complete: true}, nil
		}
		w := NewWatcher(comparerOf(t, poolOf(full16)).rules, store, slog.New(slog.NewTextHandler(&log, nil)))
		stop := w.Start(t.Context())
		time.Sleep(time.Hour)
		stop()
		assert.Equal(t, []time.Duration{0, minKeysPause, 3 * minKeysPause, 3*minKeysPause + recheckDelay}, sampled)
		assert.Equal(t, 1, strings.Count(log.String(), "\n"))
		assert.Contains(t, log.String(), `of the model \"other\", and lookups ask for \"m\"`)
	})
}
