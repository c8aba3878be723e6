package router

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// promptBlock returns the token ids of block n of some prompts.
func promptBlock(n int) (tokens []int64) {
	for i := range 16 {
		tokens = append(tokens, int64(n*16+i+1))
	}
	return tokens
}

// storedBy returns an event of an engine that hashes as h, for the first block of a prompt.
func storedBy(t testing.TB, h Hashing, n int) map[string]any {
	t.Helper()
	h.SetDefaults()
	b := events.FirstBlock{Tokens: promptBlock(n), Pairs: h.Bigrams, Lookahead: []int64{7, 8, 9}[:h.Lookahead]}
	var ids []any
	for _, id := range b.Tokens {
		ids = append(ids, id)
	}
	if h.Bigrams {
		for i := range ids {
			ids[i] = []any{b.Tokens[i], b.Tokens[i] + 1}
		}
		b.Tokens = append(b.Tokens, b.Tokens[15]+1)
	}
	_, short, err := h.firstHash(16, &b)
	require.NoError(t, err)
	event := eventstest.Stored(nil, []byte{0})
	event["block_hashes"], event["token_ids"] = []any{short}, ids
	if h.Type == TypeSGLang {
		event["block_hashes"] = []any{int64(short)} //nolint:gosec // as SGLang sends it
		delete(event, "group_idx")
	}
	if h.Lookahead > 0 {
		event["lookahead_token_ids"] = []any{[]any{7, 8, 9}[:h.Lookahead]}
	}
	return event
}

// checked is a service with one model, and sources that publish.
type checked struct {
	*Service
	t   testing.TB
	log logtest.Buffer
}

func newChecked(t testing.TB, h Hashing) *checked {
	return newCheckedModel(t, Model{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}, Hash: &h})
}

func newCheckedModel(t testing.TB, m Model) *checked {
	c := &checked{t: t}
	c.Service = newService(t, Config{Models: []Model{m}, Logger: slog.New(slog.NewTextHandler(&c.log, nil))})
	return c
}

func (c *checked) follow(engine string) *eventstest.Publisher {
	c.t.Helper()
	p := eventstest.New(c.t)
	require.NoError(c.t, c.Add(checkedSource(p, engine)))
	return p
}

func checkedSource(p *eventstest.Publisher, engine string) Source {
	return Source{Name: engine, Endpoint: p.Endpoint, Replay: p.Replay, Model: "llama", Engine: engine}
}

// publish publishes events, waits until they are applied, and returns the state of the source.
func (c *checked) publish(p *eventstest.Publisher, engine string, list ...map[string]any) SourceStatus {
	c.t.Helper()
	before := status(c.t, c.Service, engine).Batches
	lookuptest.Eventually(c.t, "the source is subscribed to", p.HasSubscriber)
	for _, e := range list {
		p.Publish(false, e)
	}
	lookuptest.Eventually(c.t, "the events are applied", func() bool {
		st := status(c.t, c.Service, engine)
		return st.Batches == before+int64(len(list)) && !st.Stale
	})
	return status(c.t, c.Service, engine)
}

// byTokens asks for block n.
func (c *checked) byTokens(n int) error {
	return c.Query(c.t.Context(), &Query{ModelKey: llama, Tokens: promptBlock(n)}, new(Answer))
}

// The ways to hash that engines have are recognized, and the reason is the setting that would fit.
func TestHashesDiffer(t *testing.T) {
	vllm := Hashing{Type: TypeVLLM}
	sglang := Hashing{Type: TypeSGLang}
	for _, test := range []struct {
		model, engine Hashing
		want          string
	}{
		{vllm, Hashing{Algorithm: "sha256_cbor"}, `hash: {"type":"vllm","algorithm":"sha256_cbor"}`},
		{Hashing{Algorithm: "sha256_cbor"}, vllm, `hash: {"type":"vllm"}`},
		{vllm, Hashing{Algorithm: "xxhash", Seed: new("42")}, `hash: {"type":"vllm","algorithm":"xxhash","seed":"42"}`},
		{Hashing{Release: "0.28.0", Seed: new("0")}, Hashing{Release: "0.29.0"}, `hash: {"type":"vllm"}`},
		{vllm, Hashing{Lookahead: 2}, `hash: {"type":"vllm","lookahead":2}`},
		{vllm, Hashing{Seed: new("nobody guesses it")}, "PYTHONHASHSEED is probably another"},
		{sglang, Hashing{Type: TypeSGLang, Bigrams: true}, `hash: {"type":"sglang","bigrams":true}`},
		{vllm, sglang, `hash: {"type":"sglang"}`},
		{sglang, Hashing{Algorithm: "sha256_cbor"}, `hash: {"type":"vllm","algorithm":"sha256_cbor"}`},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t, test.model)
			p := c.follow("e")
			st := c.publish(p, "e")
			require.Equal(t, HashesUnchecked, st.Hashes)
			st = c.publish(p, "e", storedBy(t, test.engine, 1), storedBy(t, test.engine, 1))
			require.Equal(t, HashesUnchecked, st.Hashes, "one block may be a fluke, however often it comes")
			require.NoError(t, c.byTokens(1))
			st = c.publish(p, "e", storedBy(t, test.engine, 2), storedBy(t, test.engine, 3))
			require.Equal(t, HashesDiffer, st.Hashes)
			require.Contains(t, st.HashesReason, test.want)
			require.ErrorIs(t, c.byTokens(2), ErrHashesDiffer)
			_, short, err := test.model.firstHash(16, &events.FirstBlock{Tokens: promptBlock(2)})
			require.NoError(t, err)
			require.NoError(t, c.Query(t.Context(), &Query{ModelKey: llama, Hashes: coordinator.NewHashes(binary.BigEndian.AppendUint64(nil, short), 8)}, new(Answer)))

			st = c.publish(p, "e", storedBy(t, test.model, 4))
			require.Equal(t, HashesAgree, st.Hashes)
			require.Empty(t, st.HashesReason)
			require.NoError(t, c.byTokens(4))
			st = c.publish(p, "e", storedBy(t, test.engine, 5), storedBy(t, test.engine, 6))
			require.Equal(t, HashesAgree, st.Hashes, "no further block is hashed")
			c.Close()
			require.Equal(t, 2, strings.Count(c.log.String(), "level=WARN"), "of the source, and of the model: %s", c.log.String())
			require.Equal(t, 1, strings.Count(c.log.String(), "agree with the model's again"))
		})
	}
}

// That the engine has blocks of another size is known with the first of them, unless its KV cache groups have larger ones.
func TestOtherBlockSize(t *testing.T) {
	vllm, cbor := Hashing{Type: TypeVLLM}, Hashing{Type: TypeVLLM, Algorithm: "sha256_cbor"}
	sglang := Hashing{Type: TypeSGLang}
	// stored is a block of a prompt, of size tokens, whose hash is that of its last hashSize tokens.
	stored := func(h Hashing, n, size, hashSize int) map[string]any {
		var b events.FirstBlock
		var ids []any
		for i := range size {
			b.Tokens, ids = append(b.Tokens, int64(1000*n+i)), append(ids, 1000*n+i)
		}
		_, short, err := h.firstHash(hashSize, &b)
		require.NoError(t, err)
		event := eventstest.Stored(nil, binary.BigEndian.AppendUint64(nil, short))
		event["token_ids"], event["block_size"] = ids, size
		return event
	}
	for name, test := range map[string]struct {
		model, engine       Hashing
		size, hashSize, num int
		want                string
	}{
		"larger":        {vllm, vllm, 32, 32, 1, "the engine hashes blocks of 32 tokens: give the model block_size: 32"},
		"smaller":       {vllm, vllm, 8, 8, 1, "the engine hashes blocks of 8 tokens: give the model block_size: 8"},
		"SGLang":        {sglang, sglang, 64, 64, 1, "give the model block_size: 64"},
		"also the hash": {vllm, cbor, 32, 32, 2, `of 32 tokens: give the model block_size: 32 and hash: {"type":"vllm","algorithm":"sha256_cbor"}`},
		"hash of group": {vllm, cbor, 32, 16, 2, `the engine hashes otherwise: give the model hash: {"type":"vllm","algorithm":"sha256_cbor"}`},
		"large group":   {vllm, vllm, 32, 16, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t, test.model)
			p := c.follow("e")
			var batch []map[string]any
			for n := range test.num {
				batch = append(batch, stored(test.engine, n, test.size, test.hashSize))
			}
			st := c.publish(p, "e", batch...)
			if test.want == "" {
				require.Equal(t, HashesAgree, st.Hashes)
				return
			}
			require.Equal(t, HashesDiffer, st.Hashes)
			require.Contains(t, st.HashesReason, test.want)
		})
	}
}

// One engine whose hashes differ refuses nothing that others, predictions or the store may answer. That no live source agrees
// is said once.
func TestHashesDifferOfOne(t *testing.T) {
	vllm, other := Hashing{}, Hashing{Algorithm: "sha256_cbor"}
	const differs, unchecked = "liar (differ) ", "honest (unchecked) liar (differ) "
	unsureOf := func(c *checked) (text string) {
		var a Answer
		require.NoError(t, c.Query(t.Context(), &Query{ModelKey: llama, Tokens: promptBlock(1)}, &a))
		for _, u := range a.Unsure {
			text += fmt.Sprintf("%s (%s) ", u.Engine, strings.Join(u.Reasons(nil), ", "))
		}
		return text
	}
	lie := func(c *checked, liar *eventstest.Publisher) {
		c.publish(liar, "liar", storedBy(t, other, 1), storedBy(t, other, 2))
	}
	t.Run("another has nothing yet, or again", func(t *testing.T) {
		t.Parallel()
		c := newChecked(t, vllm)
		liar, honest := c.follow("liar"), c.follow("honest")
		c.publish(honest, "honest")
		lie(c, liar)
		require.Equal(t, differs, unsureOf(c), "of an empty one 0 is certain")
		require.True(t, c.Models()[0].HashesDiffer)
		require.NoError(t, c.Predict(t.Context(), llama, fleet.ID{Engine: "honest"}, &Query{Tokens: promptBlock(2)}))
		require.Equal(t, HashesAgree, c.publish(honest, "honest", storedBy(t, vllm, 1)).Hashes)
		require.Equal(t, "honest/0=16(GPU=16) ", ask(t, c.Service, Query{ModelKey: llama, Tokens: promptBlock(1)}))
		require.Equal(t, differs, unsureOf(c))
		require.False(t, c.Models()[0].HashesDiffer)
		c.publish(honest, "honest", eventstest.Cleared())
		require.Equal(t, differs, unsureOf(c))
		c.publish(honest, "honest", eventstest.Stored(nil, hashesOf(7).At(0)))
		require.Equal(t, unchecked, unsureOf(c))
		require.True(t, c.Models()[0].HashesDiffer)
		honest.Close()
		lookuptest.Eventually(t, "the honest one is stale", func() bool { return unsureOf(c) == "honest (stale, unchecked) liar (differ) " })
		require.Equal(t, 1, strings.Count(c.log.String(), "no live source of a model is known to hash"), c.log.String())
		require.Contains(t, c.log.String(), "model=llama tenant=default engine=liar rank=0 reason=\"the engine hashes otherwise")
	})
	t.Run("predictions, until they expire", func(t *testing.T) {
		t.Parallel()
		c := newChecked(t, vllm)
		lie(c, c.follow("liar"))
		require.NoError(t, c.Predict(t.Context(), llama, fleet.ID{Engine: "predicted"}, &Query{Tokens: promptBlock(1)}))
		require.Equal(t, "predicted/0=16(predicted=16) ", ask(t, c.Service, Query{ModelKey: llama, Tokens: promptBlock(1)}))
		require.Equal(t, differs, unsureOf(c))

		c = newCheckedModel(t, Model{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, PredictTTL: time.Millisecond}, Hash: &vllm})
		lie(c, c.follow("liar"))
		require.NoError(t, c.Predict(t.Context(), llama, fleet.ID{Engine: "predicted"}, &Query{Tokens: promptBlock(1)}))
		lookuptest.Eventually(t, "nothing is predicted", func() bool { return c.byTokens(1) != nil })
		require.ErrorIs(t, c.byTokens(1), ErrHashesDiffer)
	})
	t.Run("what the store can load", func(t *testing.T) {
		t.Parallel()
		pool := newPool(t, 32)
		c := newCheckedModel(t, Model{ModelKey: llama, Pool: pool, Hash: &vllm})
		lie(c, c.follow("liar"))
		tokens := slices.Concat(promptBlock(1), promptBlock(2))
		whole, _ := digests(t, &vllm, 16, tokens, nil)
		require.NoError(t, pool.Store(t.Context(), coordinator.GroupRank{}, first(whole, 1)))
		require.Equal(t, "loadable=16", ask(t, c.Service, Query{ModelKey: llama, Tokens: tokens, Loadable: true}))
		require.ErrorIs(t, c.byTokens(1), ErrHashesDiffer)
	})
}

// What events do not tell of a block is no reason to refuse: it is not checked.
func TestHashesUnchecked(t *testing.T) {
	other := Hashing{Algorithm: "sha256_cbor"}
	for name, change := range map[string]func(map[string]any){
		"parent":        func(e map[string]any) { e["parent_block_hash"] = uint64(1) },
		"no tokens":     func(e map[string]any) { e["token_ids"] = []any{} },
		"masked":        func(e map[string]any) { e["token_ids"] = append(e["token_ids"].([]any), e["token_ids"].([]any)...) },
		"adapter":       func(e map[string]any) { e["lora_name"] = "a" },
		"older adapter": func(e map[string]any) { e["lora_id"] = 3 },
		"image":         func(e map[string]any) { e["extra_keys"] = []any{[]any{[]any{"image", 3}}} },
		"two keys":      func(e map[string]any) { e["extra_keys"] = []any{[]any{"a", "b"}} },
		"long salt":     func(e map[string]any) { e["extra_keys"] = []any{[]any{strings.Repeat("s", 4097)}} },
		"lookahead":     func(e map[string]any) { e["lookahead_token_ids"] = []any{slices.Repeat([]any{1}, 65)} },
		"embeddings":    func(e map[string]any) { e["extra_keys"] = []any{[]any{[]byte("digest")}} },
		"connector":     func(e map[string]any) { e["medium"] = "cpu" },
		"block size":    func(e map[string]any) { e["block_size"], e["token_ids"] = 8, e["token_ids"].([]any)[:8] },
		"bad tokens":    func(e map[string]any) { e["token_ids"].([]any)[3] = "x" },
		"bad pairs":     func(e map[string]any) { e["token_ids"].([]any)[0] = []any{1, 2} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t, Hashing{})
			p := c.follow("e")
			one, two := storedBy(t, other, 1), storedBy(t, other, 2)
			change(one)
			change(two)
			require.Equal(t, HashesUnchecked, c.publish(p, "e", one, two).Hashes)
		})
	}
}

// An engine that restarts, or clears all it holds, may hash otherwise than before: its hashes are unchecked until an event
// shows it.
func TestHashesAfterRestart(t *testing.T) {
	vllm, other := Hashing{}, Hashing{Algorithm: "sha256_cbor"}
	for name, begin := range map[string]func(*eventstest.Publisher) []map[string]any{
		"restart": func(p *eventstest.Publisher) []map[string]any { p.Restart(); return nil },
		"cleared": func(*eventstest.Publisher) []map[string]any { return []map[string]any{{"type": "AllBlocksCleared"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t, vllm)
			p := c.follow("e")
			require.Equal(t, HashesAgree, c.publish(p, "e", storedBy(t, vllm, 1)).Hashes)
			require.Equal(t, HashesUnchecked, c.publish(p, "e", append(begin(p), storedBy(t, other, 2))...).Hashes)
			var a Answer
			require.NoError(t, c.Query(t.Context(), &Query{ModelKey: llama, Tokens: promptBlock(2)}, &a))
			require.Equal(t, []Unsure{{ID: fleet.ID{Engine: "e"}, Hashes: HashesUnchecked}}, a.Unsure)
			require.Equal(t, HashesDiffer, c.publish(p, "e", storedBy(t, other, 3)).Hashes)
			st := c.publish(p, "e", append(begin(p), storedBy(t, other, 2))...)
			require.Equal(t, HashesUnchecked, st.Hashes)
			require.Empty(t, st.HashesReason)
		})
	}
}

// A replica knows what its peer does of an engine's hashes, if it hashes as the peer, and the engine is the same.
func TestHashesOfReplica(t *testing.T) {
	c := newChecked(t, Hashing{})
	p := c.follow("e")
	require.Equal(t, HashesAgree, c.publish(p, "e", storedBy(t, Hashing{}, 1)).Hashes)
	dump := dumpOf(t, c.Service)
	replica := func(h Hashing, next uint64) Agreement {
		r := newChecked(t, h)
		require.NoError(t, r.LoadDump(bytes.NewReader(dump)))
		require.NoError(t, r.Add(checkedSource(p, "e")))
		awaitNext(t, r.Service, "e", next)
		return status(t, r.Service, "e").Hashes
	}
	require.Equal(t, HashesAgree, replica(Hashing{}, 1))
	require.Equal(t, HashesUnchecked, replica(Hashing{Algorithm: "sha256_cbor"}, 1))
	p.Restart()
	require.Equal(t, HashesUnchecked, replica(Hashing{}, 0))
}
