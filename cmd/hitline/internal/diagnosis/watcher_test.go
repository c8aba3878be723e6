package diagnosis

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
)

// A watcher compares the hash lengths of lookups until one hits, and always their block size.
func TestWatcherObserves(t *testing.T) {
	chain := randomChain()
	event := eventOf(chain)
	short := lookup.LookupEvent{NumTokens: event.NumTokens, Hashes: coordinator.NewHashes(slices.Concat(chain...)[:16*promptLen], 16)}
	store := keySet{}.store()
	store.Sample = func(context.Context) (Sample, error) {
		return Sample{Keys: []string{"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" + hex.EncodeToString(chain[0])}, Complete: true}, nil
	}
	w := NewWatcher(comparerOf(t, poolOf(full16)).rules, store, slog.New(slog.DiscardHandler))
	w.Observe(short)
	assert.Empty(t, w.prompts, "no key was seen yet")
	assert.Empty(t, w.examineKeys(t.Context()).Problems)
	w.Observe(event)
	assert.Empty(t, w.prompts)
	w.Observe(short)
	require.Len(t, w.prompts, 1)
	assert.Contains(t, w.examinePrompt(<-w.prompts).Problems[0], "a prompt's hashes have 16 bytes, and those in the store 32")

	const start = 1 << 20 // of an engine that holds most of the prompt itself
	late := lookup.LookupEvent{NumTokens: start + event.NumTokens, Hashes: event.Hashes.From(start), Hit: api.Hit{Tokens: start}}
	for range sizeMismatchRun {
		w.Observe(late)
	}
	assert.Empty(t, w.prompts, "the hashes before the start are not missing")
	w.Observe(short)
	require.Len(t, w.prompts, 1, "a hit up to the start is none")
	<-w.prompts

	event.Hit.Tokens = 16
	w.Observe(event)
	w.Observe(short)
	assert.Empty(t, w.prompts, "a lookup has hit")

	event.NumTokens /= 2
	for range sizeMismatchRun - 1 {
		w.Observe(event)
	}
	w.Observe(short)
	w.Observe(event)
	assert.Empty(t, w.prompts, "not in a row")
	for range sizeMismatchRun {
		w.Observe(event)
	}
	require.Len(t, w.prompts, 1)
	assert.Contains(t, w.examinePrompt(<-w.prompts).Problems[0], "one for every 8 tokens")
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
