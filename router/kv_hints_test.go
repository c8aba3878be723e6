package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/router/fleet"
)

// Hints are about the first holder that has a KVEndpoint and is not stale. Their hashes are the 64 bits that events have, also of tokens of
// which the store is asked by other hashes.
func TestKVHints(t *testing.T) {
	for _, hash := range []*Hashing{{Type: TypeVLLM}, {Type: TypeSGLang, Dynamo: true}} {
		s := newService(t, Config{Models: []Model{{ModelKey: llama, Pool: newPool(t, 32), Hash: hash}}})
		tokens := make([]int64, 305*16) // hashed in two pieces
		_, inEvents := digests(t, hash, 16, tokens, nil)
		for engine, n := range map[string]int{"longest": 301, "second": 300, "third": 2} {
			src := source(t, llama, engine, 0, 16)
			if engine != "longest" {
				src.KVEndpoint = "tcp://" + engine + ":1"
			}
			require.NoError(t, s.Add(src))
			hold(t, s, llama, fleet.ID{Engine: engine}, cpu, first(inEvents, n))
		}
		hints := func(q Query) *KVHints {
			var a Answer
			q.ModelKey = llama
			require.NoError(t, s.Query(t.Context(), &q, &a))
			return a.KVHints
		}
		require.Nil(t, hints(Query{Tokens: tokens}))
		require.Nil(t, hints(Query{Tokens: tokens, Engine: "longest", KVHints: true}))
		require.Nil(t, hints(Query{Tokens: tokens[:15], KVHints: true}))
		got := hints(Query{Tokens: tokens, KVHints: true, Loadable: true})
		require.Equal(t, "second", got.From.Engine)
		want := KVFetch{Endpoint: "tcp://second:1"}
		for _, h := range first(inEvents, 300).All() {
			want.Hashes = append(want.Hashes, blockhash.ShortHash(h))
		}
		require.Equal(t, want, got.Actions[0].Payload)
		require.Equal(t, got, hints(Query{Hashes: inEvents, KVHints: true}))
		require.Equal(t, "third", hints(Query{Tokens: tokens, Engine: "third", KVHints: true}).From.Engine)

		require.NoError(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "third"}, &Query{Tokens: tokens}))
		predicted := hints(Query{Tokens: tokens, KVHints: true})
		require.Equal(t, "third", predicted.From.Engine)
		require.Len(t, predicted.Actions[0].Payload.Hashes, 2, "what it will have is not there yet")

		f, err := s.Fleet(llama)
		require.NoError(t, err)
		f.Get(fleet.ID{Engine: "second"}).SetStale(true)
		require.Equal(t, "third", hints(Query{Tokens: tokens, LastKnown: true, KVHints: true}).From.Engine)
	}
}
