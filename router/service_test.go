package router

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

var (
	gpu   = events.Tier{Medium: "GPU"}
	cpu   = events.Tier{Medium: "CPU"}
	llama = ModelKey{Name: "llama"}
)

func newService(t testing.TB, cfg Config) *Service {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

var deadEndpoints atomic.Int32

// deadEndpoint is another one each time that nothing listens at: its port is above those that systems choose.
func deadEndpoint() string { return fmt.Sprint("tcp://127.0.0.1:", 61_000+deadEndpoints.Add(1)%4_000) }

// source is a source of an engine that is not there: the test stores in its holder.
func source(t testing.TB, key ModelKey, engine string, rank, blockSize int) Source {
	return Source{
		Name: fmt.Sprintf("%s/%s/%d", key.Name, engine, rank), Endpoint: deadEndpoint(), Model: key.Name, Tenant: key.Tenant,
		Engine: engine, Rank: rank, BlockSize: blockSize,
	}
}

// hold stores blocks in a holder as its source would.
func hold(t testing.TB, s *Service, key ModelKey, id fleet.ID, tier events.Tier, hashes coordinator.Hashes) {
	t.Helper()
	f, err := s.Fleet(key)
	require.NoError(t, err)
	h := f.Get(id)
	require.NotNil(t, h)
	require.NoError(t, h.Store(&events.Blocks{Group: events.NoGroup, Tier: tier, Hashes: hashes}, make([]bool, hashes.Len())))
	h.SetStale(false)
}

// chain returns n hashes of 32 bytes.
func chain(name string, n int) coordinator.Hashes {
	return coordinator.NewHashes(lookuptest.Chain(name, n, 32), 32)
}

func first(h coordinator.Hashes, n int) coordinator.Hashes {
	return coordinator.NewHashes(h.Bytes()[:n*h.HashLen()], h.HashLen())
}

// short returns the 64 bits of hashes that events have.
func short(h coordinator.Hashes) coordinator.Hashes {
	var b []byte
	for _, hash := range h.All() {
		b = append(b, hash[len(hash)-8:]...)
	}
	return coordinator.NewHashes(b, 8)
}

// ask returns the answer to a query as text: engine/rank=tokens(medium=tokens …) ….
func ask(t testing.TB, s *Service, q Query) string {
	t.Helper()
	var a Answer
	require.NoError(t, s.Query(t.Context(), &q, &a))
	return textOf(&a)
}

func textOf(a *Answer) string {
	text := ""
	for _, h := range a.Holders {
		text += fmt.Sprintf("%s/%d=%d(", h.Engine, h.Rank, h.Tokens)
		for i, m := range h.Media {
			if i > 0 {
				text += " "
			}
			text += fmt.Sprintf("%s=%d", m.Medium, m.Tokens)
		}
		text += ") "
	}
	if a.LoadableTokens >= 0 {
		text += fmt.Sprintf("loadable=%d", a.LoadableTokens)
	}
	return text
}

func blocks16(hashLen int) coordinator.Pool {
	return coordinator.Pool{HashBlockSize: 16, HashLen: hashLen, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}}
}

func newPool(t testing.TB, hashLen int) *lookup.Service {
	t.Helper()
	p, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16(hashLen), Memory: index.Config{MaxBytes: 64 << 20}})
	require.NoError(t, err)
	return p
}

func TestQuery(t *testing.T) {
	pool := newPool(t, 32)
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Pool: pool}, {ModelKey: ModelKey{Tenant: "other", Name: "llama"}, Fleet: fleet.Config{BlockSize: 16}}}})
	require.NoError(t, s.Add(source(t, llama, "a", 0, 0)))
	require.NoError(t, s.Add(source(t, llama, "a", 1, 16)))
	require.NoError(t, s.Add(source(t, llama, "b", 0, 0)))
	prompt := chain("prompt", 10)
	require.Empty(t, ask(t, s, Query{ModelKey: llama, Hashes: prompt}))
	hold(t, s, llama, fleet.ID{Engine: "a"}, gpu, short(first(prompt, 3)))
	hold(t, s, llama, fleet.ID{Engine: "a", Rank: 1}, gpu, short(first(prompt, 5)))
	hold(t, s, llama, fleet.ID{Engine: "b"}, cpu, short(first(prompt, 4)))
	require.NoError(t, pool.Store(t.Context(), coordinator.GroupRank{}, first(prompt, 7)))

	all := "a/1=80(GPU=80) b/0=64(CPU=64) a/0=48(GPU=48) "
	require.Equal(t, all, ask(t, s, Query{ModelKey: llama, Hashes: prompt}))
	require.Equal(t, all, ask(t, s, Query{Hashes: short(prompt), BlockSize: 16}), "the only model of the tenant")
	require.Equal(t, "b/0=64(CPU=64) ", ask(t, s, Query{Hashes: prompt, Engine: "b"}))
	require.Equal(t, "a/1=80(GPU=80) a/0=48(GPU=48) ", ask(t, s, Query{Hashes: prompt, Engine: "a"}))
	require.Equal(t, all+"loadable=112", ask(t, s, Query{Hashes: prompt, Loadable: true}))
	require.Equal(t, all+"loadable=96", ask(t, s, Query{Hashes: prompt, Loadable: true, NumTokens: 100}))
	require.Equal(t, "loadable=0", ask(t, s, Query{Loadable: true}))
	require.Empty(t, ask(t, s, Query{ModelKey: ModelKey{Tenant: "other"}, Hashes: prompt}))

	var a Answer
	require.NoError(t, s.Query(t.Context(), &Query{ModelKey: ModelKey{Tenant: "other"}, Hashes: prompt, Loadable: true}, &a))
	require.Equal(t, LoadableUnknown("the model has no pool"), a.LoadableUnknown)
	require.EqualValues(t, -1, a.LoadableTokens)
	for _, test := range []struct {
		q    Query
		want error
	}{
		{Query{ModelKey: ModelKey{Name: "qwen"}}, ErrNoModel},
		{Query{ModelKey: ModelKey{Tenant: "nobody"}}, ErrNoModel},
		{Query{Hashes: prompt, BlockSize: 32}, ErrOtherBlock},
		{Query{Tokens: make([]int64, 16)}, ErrNoHashing},
		{Query{Hashes: short(prompt), Loadable: true}, ErrWholeHash},
		{Query{Hashes: coordinator.NewHashes(make([]byte, 160), 16), Loadable: true}, ErrHashLen},
		{Query{Hashes: coordinator.NewHashes(make([]byte, 40), 4)}, fleet.ErrHashLen},
		{Query{Hashes: prompt, Loadable: true, NumTokens: -1}, ErrField},
	} {
		require.ErrorIs(t, s.Query(t.Context(), &test.q, &a), test.want, "%+v", test.q)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Query(ctx, &Query{Hashes: prompt, Loadable: true}, &a), context.Canceled)
}

// Tokens are answered as their hashes are, in pieces, with the extra keys of the request.
func TestQueryTokens(t *testing.T) {
	seed := "0"
	configs := map[string]Hashing{
		"sha256": {}, "old": {Release: "0.28.0", Seed: &seed}, "xxhash": {Algorithm: blockhash.XXHashCBOR, Seed: &seed},
		"lookahead": {Lookahead: 3}, "sglang": {Type: TypeSGLang}, "bigrams": {Type: TypeSGLang, Bigrams: true}, "dynamo": {Type: TypeSGLang, Dynamo: true},
	}
	for name, hashing := range configs {
		t.Run(name, func(t *testing.T) {
			s := newService(t, Config{Models: []Model{{ModelKey: llama, Hash: &hashing, Fleet: fleet.Config{BlockSize: 4}}}})
			require.NoError(t, s.Add(source(t, llama, "a", 0, 0)))
			tokens := make([]int64, 4*(2*piece+7)+3)
			for i := range tokens {
				tokens[i] = int64(i*7919) % 50_000
			}
			for _, keys := range []*blockhash.ExtraKeys{nil, {Salt: "salt"}} {
				_, held := digests(t, &hashing, 4, tokens, keys)
				for _, n := range []int{0, 1, piece - 1, piece, piece + 1, 2*piece + 7} {
					n = min(n, held.Len())
					s.fleetOf(t).Get(fleet.ID{Engine: "a"}).Clear()
					hold(t, s, llama, fleet.ID{Engine: "a"}, gpu, first(held, n))
					want := ""
					if n > 0 {
						want = fmt.Sprintf("a/0=%d(GPU=%d) ", 4*n, 4*n)
					}
					require.Equal(t, want, ask(t, s, Query{Tokens: tokens, Keys: keys}), "%d blocks", n)
					require.Equal(t, want, ask(t, s, Query{Hashes: held}), "%d blocks", n)
				}
				require.Empty(t, ask(t, s, Query{Tokens: tokens, Keys: &blockhash.ExtraKeys{Salt: "other"}}))
			}
		})
	}
}

func (s *Service) fleetOf(t testing.TB) *fleet.Fleet {
	t.Helper()
	f, err := s.Fleet(llama)
	require.NoError(t, err)
	return f
}

// digests returns the hashes of tokens in blocks of a size, as the store has them, and their 64 bits in events.
func digests(t *testing.T, h *Hashing, size int, tokens []int64, keys *blockhash.ExtraKeys) (whole, inEvents coordinator.Hashes) {
	t.Helper()
	var short []byte
	if h.Type != TypeSGLang {
		v, err := h.newVLLM(size)
		require.NoError(t, err)
		all, err := v.AppendHashes(nil, tokens, keys)
		require.NoError(t, err)
		whole = coordinator.NewHashes(all, v.HashLen())
		for _, hash := range whole.All() {
			short = binary.BigEndian.AppendUint64(short, blockhash.ShortHash(hash))
		}
		return whole, coordinator.NewHashes(short, 8)
	}
	c := blockhash.SGLangConfig{PageSize: size, Bigrams: h.Bigrams, Namespace: blockhash.Namespace{Dynamo: h.Dynamo}}
	if keys != nil {
		c.Namespace.Salt = keys.Salt
	}
	all := map[bool][]byte{}
	for _, c.Storage = range []bool{true, false} {
		g, err := blockhash.NewSGLang(c)
		require.NoError(t, err)
		all[c.Storage], err = g.AppendHashes(nil, tokens)
		require.NoError(t, err)
		if !c.Storage {
			for _, digest := range coordinator.NewHashes(all[false], blockhash.DigestLen).All() {
				short = binary.BigEndian.AppendUint64(short, g.ShortHash(digest))
			}
		}
	}
	return coordinator.NewHashes(all[true], blockhash.DigestLen), coordinator.NewHashes(short, 8)
}

// What the store can load is asked by the whole digests of the tokens.
func TestQueryTokensLoadable(t *testing.T) {
	for _, typ := range []string{TypeVLLM, TypeSGLang} {
		t.Log(typ)
		pool := newPool(t, 32)
		s := newService(t, Config{Models: []Model{{ModelKey: llama, Hash: &Hashing{Type: typ}, Pool: pool}}})
		tokens := make([]int64, 16*600+5)
		whole, _ := digests(t, &Hashing{Type: typ}, 16, tokens, nil)
		require.NoError(t, pool.Store(t.Context(), coordinator.GroupRank{}, first(whole, 400)))
		require.Equal(t, "loadable=6400", ask(t, s, Query{Tokens: tokens, Loadable: true}))
		require.Equal(t, "loadable=160", ask(t, s, Query{Tokens: tokens, Loadable: true, NumTokens: 167}))
		require.NoError(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "p"}, &Query{Tokens: tokens[:64]}))
		require.Equal(t, "p/0=64(predicted=64) loadable=6400", ask(t, s, Query{Tokens: tokens, Loadable: true}))
	}
}

// With lookahead tokens the last block of a prompt may have no hash. A pool whose rules read the last block first takes
// that well.
func TestQueryTokensLookahead(t *testing.T) {
	window := coordinator.Pool{
		HashBlockSize: 16, HashLen: 32, Groups: []coordinator.Group{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32}},
	}
	pool, err := lookup.NewService(lookup.ServiceConfig{Pool: window, Memory: index.Config{MaxBytes: 64 << 20}})
	require.NoError(t, err)
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Hash: &Hashing{Lookahead: 3}, Pool: pool}}})
	tokens := make([]int64, 64)
	require.Equal(t, "loadable=0", ask(t, s, Query{Tokens: tokens, Loadable: true}))
	whole, _ := digests(t, &Hashing{Lookahead: 3}, 16, tokens, nil)
	require.NoError(t, pool.Store(t.Context(), coordinator.GroupRank{}, whole))
	require.Equal(t, "loadable=48", ask(t, s, Query{Tokens: tokens, Loadable: true}))
}

func TestTokensRefused(t *testing.T) {
	vllm, sglang := ModelKey{Name: "vllm"}, ModelKey{Name: "sglang"}
	s := newService(t, Config{Models: []Model{
		{ModelKey: vllm, Hash: &Hashing{}, Fleet: fleet.Config{BlockSize: 4}},
		{ModelKey: sglang, Hash: &Hashing{Type: TypeSGLang}, Fleet: fleet.Config{BlockSize: 4}},
	}})
	lora := &blockhash.ExtraKeys{LoRA: &blockhash.LoRA{Name: "l"}}
	for _, test := range []struct {
		q    Query
		want error
	}{
		{Query{ModelKey: vllm, Tokens: []int64{1, 2, 3, -1}}, ErrToken},
		{Query{ModelKey: vllm, Tokens: []int64{1 << 31, 2, 3, 1}}, ErrToken},
		{Query{ModelKey: sglang, Tokens: []int64{1, -2, 3, 1}}, ErrToken},
		{Query{ModelKey: vllm, Tokens: []int64{1, 2, 3, 4}, Keys: lora}, ErrAdapter},
		{Query{ModelKey: sglang, Tokens: []int64{1, 2, 3, 4}, Keys: lora}, ErrAdapter},
		{Query{ModelKey: vllm, Tokens: []int64{1, 2, 3, 4}, Keys: &blockhash.ExtraKeys{Salt: "\xff"}}, blockhash.ErrExtraKeys},
	} {
		require.ErrorIs(t, s.Query(t.Context(), &test.q, new(Answer)), test.want)
		require.ErrorIs(t, s.Predict(t.Context(), test.q.ModelKey, fleet.ID{Engine: "a"}, &test.q), test.want)
	}
	require.NoError(t, s.Query(t.Context(), &Query{ModelKey: sglang, Tokens: []int64{1 << 40, 2, 3, 1}}, new(Answer)), "a wide page")
	require.NoError(t, s.Query(t.Context(), &Query{ModelKey: vllm, Tokens: []int64{1<<31 - 1, 2, 3, 1}}, new(Answer)))
}

func TestPredict(t *testing.T) {
	prompt, a := chain("p", 5), fleet.ID{Engine: "a"}
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, PredictTTL: 300 * time.Millisecond, MaxHolders: 1}}}})
	require.NoError(t, s.Predict(t.Context(), llama, a, &Query{Hashes: first(prompt, 3), BlockSize: 16}))
	require.Equal(t, "a/0=48(predicted=48) ", ask(t, s, Query{Hashes: prompt}))
	require.ErrorIs(t, s.Predict(t.Context(), llama, a, &Query{Hashes: prompt, BlockSize: 32}), ErrOtherBlock)
	require.ErrorIs(t, s.Predict(t.Context(), ModelKey{Name: "qwen"}, a, &Query{Hashes: prompt}), ErrNoModel)
	require.ErrorIs(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "a\nb"}, &Query{Hashes: prompt}), ErrField)
	require.ErrorIs(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "a", Rank: -1}, &Query{Hashes: prompt}), ErrField)
	require.NoError(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "nothing"}, &Query{}))
	b := fleet.ID{Engine: "b"}
	require.ErrorIs(t, s.Predict(t.Context(), llama, b, &Query{Hashes: prompt}), fleet.ErrTooMany)
	lookuptest.Eventually(t, "a is dropped", func() bool { return s.Predict(t.Context(), llama, b, &Query{Hashes: prompt}) == nil })
	require.Equal(t, "b/0=80(predicted=80) ", ask(t, s, Query{Hashes: prompt}))
	lookuptest.Eventually(t, "b is unknown", func() bool {
		var a Answer
		err := s.Query(t.Context(), &Query{ModelKey: llama, Hashes: prompt, Engine: "b"}, &a)
		return err == nil && len(a.Unsure) == 1 && a.Unsure[0].Unknown
	})
	require.Empty(t, s.Models()[0].Holders)
}

// A source takes the holder over that was made by a prediction.
func TestPredictThenSource(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, PredictTTL: time.Hour}}}})
	prompt, a := chain("p", 5), fleet.ID{Engine: "a"}
	require.NoError(t, s.Predict(t.Context(), llama, a, &Query{Hashes: first(prompt, 3)}))
	require.NoError(t, s.Add(source(t, llama, "a", 0, 0)))
	hold(t, s, llama, a, gpu, first(prompt, 2))
	require.Equal(t, "a/0=48(GPU=32 predicted=48) ", ask(t, s, Query{Hashes: prompt}))
	again := source(t, llama, "a", 0, 0)
	again.Name = "again"
	require.ErrorIs(t, s.Add(again), ErrExists)
	require.ErrorContains(t, s.Add(again), `rank 0 of engine "a" has a source already`)
	require.Equal(t, "a/0=48(GPU=32 predicted=48) ", ask(t, s, Query{Hashes: prompt}), "the first source is followed on")
}

// Predictions leave room for sources.
func TestSourcesBeforePredictions(t *testing.T) {
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, PredictTTL: time.Hour, MaxHolders: 2}}}})
	prompt := chain("p", 5)
	for _, engine := range []string{"p1", "p2"} {
		require.NoError(t, s.Predict(t.Context(), llama, fleet.ID{Engine: engine}, &Query{Hashes: prompt}))
	}
	require.ErrorIs(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "p3"}, &Query{Hashes: prompt}), fleet.ErrTooMany)
	require.NoError(t, s.Add(source(t, llama, "a", 0, 0)))
	require.Empty(t, ask(t, s, Query{Hashes: prompt}))
	require.NoError(t, s.Add(source(t, llama, "b", 0, 0)))
	require.ErrorIs(t, s.Add(source(t, llama, "c", 0, 0)), fleet.ErrTooMany)
}

func TestRegister(t *testing.T) {
	s := newService(t, Config{
		Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}, MaxModels: 2,
		Allow: []string{"tcp://127.0.0.1:*"},
	})
	require.NoError(t, s.Add(source(t, llama, "fixed", 0, 0)))
	require.NoError(t, s.Register(source(t, llama, "a", 0, 16)))
	qwen := ModelKey{Tenant: "x", Name: "qwen"}
	require.ErrorIs(t, s.Register(source(t, qwen, "a", 0, 0)), ErrField)
	require.Len(t, s.Models(), 1)
	require.NoError(t, s.Register(source(t, qwen, "a", 0, 32)))
	require.NoError(t, s.Register(source(t, qwen, "a", 1, 0)))
	require.ErrorIs(t, s.Register(source(t, ModelKey{Name: "third"}, "a", 0, 32)), ErrTooMany)

	evil := source(t, llama, "evil", 0, 0)
	evil.Endpoint = "tcp://192.0.2.1:5557"
	require.ErrorIs(t, s.Register(evil), ErrNotAllowed)
	sgl := source(t, llama, "sgl", 0, 0)
	sgl.Type = TypeSGLang
	require.ErrorIs(t, s.Register(sgl), ErrOtherType)
	require.ErrorIs(t, s.Check(sgl), ErrOtherType)
	require.NoError(t, s.Check(source(t, llama, "b", 0, 0)))
	require.ErrorIs(t, s.Register(source(t, llama, "b", 0, 32)), ErrOtherBlock)
	require.ErrorIs(t, s.Register(source(t, llama, "fixed", 0, 0)), ErrConfigured)
	twin := source(t, llama, "twin", 0, 0)
	twin.Name = "llama/a/0"
	require.ErrorIs(t, s.Register(twin), ErrExists)

	var names []string
	for _, st := range s.Status() {
		names = append(names, fmt.Sprint(st.Tenant, "/", st.Name, " ", st.Registered))
	}
	require.Equal(t, []string{"default/llama/a/0 true", "default/llama/fixed/0 false", "x/qwen/a/0 true", "x/qwen/a/1 true"}, names)

	require.ErrorIs(t, s.Unregister(llama, fleet.ID{Engine: "fixed"}), ErrConfigured)
	require.ErrorIs(t, s.Unregister(llama, fleet.ID{Engine: "nobody"}), ErrNoSource)
	require.ErrorIs(t, s.Unregister(ModelKey{Name: "nope"}, fleet.ID{Engine: "a"}), ErrNoModel)
	require.NoError(t, s.Unregister(llama, fleet.ID{Engine: "a"}))
	require.NoError(t, s.Unregister(qwen, fleet.ID{Engine: "a"}))
	require.Len(t, s.Models(), 2)
	require.NoError(t, s.Unregister(qwen, fleet.ID{Engine: "a", Rank: 1}))
	require.Len(t, s.Models(), 1, "the model goes with its last source")
	require.NotNil(t, s.fleetOf(t).Get(fleet.ID{Engine: "fixed"}))
	require.Nil(t, s.fleetOf(t).Get(fleet.ID{Engine: "a"}))

	s.Close()
	require.ErrorIs(t, s.Register(source(t, llama, "late", 0, 0)), ErrClosed)
	require.ErrorIs(t, s.Unregister(llama, fleet.ID{Engine: "fixed"}), ErrClosed)
	require.Nil(t, s.fleetOf(t).Get(fleet.ID{Engine: "late"}))
}

func TestNewRefuses(t *testing.T) {
	pool, known := newPool(t, 32), Model{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}
	for name, cfg := range map[string]Config{
		"no block size":    {Models: []Model{{ModelKey: llama}}},
		"twice":            {Models: []Model{known, {ModelKey: ModelKey{Tenant: "default", Name: "llama"}, Fleet: known.Fleet}}},
		"too many":         {Models: []Model{known, {ModelKey: ModelKey{Name: "x"}, Fleet: known.Fleet}}, MaxModels: 1},
		"block size":       {Models: []Model{{ModelKey: llama, Pool: pool, Fleet: fleet.Config{BlockSize: 32}}}},
		"negative":         {Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: -1}}}},
		"random seed":      {Models: []Model{{ModelKey: llama, Fleet: known.Fleet, Hash: &Hashing{Release: "0.28.0"}}}},
		"SGLang's field":   {Models: []Model{{ModelKey: llama, Fleet: known.Fleet, Hash: &Hashing{Bigrams: true}}}},
		"vLLM's field":     {Models: []Model{{ModelKey: llama, Fleet: known.Fleet, Hash: &Hashing{Type: TypeSGLang, Lookahead: 1}}}},
		"hash length":      {Models: []Model{{ModelKey: llama, Pool: pool, Hash: &Hashing{Algorithm: blockhash.XXHash, Seed: new(string)}}}},
		"name":             {Models: []Model{{ModelKey: ModelKey{Name: "a\x00"}}}},
		"tenant":           {Models: []Model{{ModelKey: ModelKey{Name: "a", Tenant: "\x00"}, Fleet: known.Fleet}}},
		"negative models":  {MaxModels: -1},
		"negative sources": {MaxSources: -1},
		"negative payload": {MaxPayload: -1},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, api.ErrConfig, name)
	}
}

// Queries, predictions, registrations and states at the same time.
func TestConcurrent(t *testing.T) {
	s := newService(t, Config{
		Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16, PredictTTL: time.Millisecond}}},
		Allow:  []string{"tcp://127.0.0.1:*"},
	})
	prompt := chain("p", 20)
	var running sync.WaitGroup
	for worker := range 4 {
		endpoint := deadEndpoint()
		running.Go(func() {
			var a Answer
			for i := range 50 {
				id := fleet.ID{Engine: fmt.Sprint("i", i%3), Rank: worker}
				key := llama
				if i%2 == 0 {
					key.Name = "registered"
				}
				err := s.Register(Source{Name: fmt.Sprint(worker, i), Endpoint: endpoint, Model: key.Name, Engine: id.Engine, Rank: id.Rank, BlockSize: 16})
				assert.NoError(t, err)
				assert.NoError(t, s.Predict(t.Context(), llama, id, &Query{Hashes: prompt}))
				assert.NoError(t, s.Predict(t.Context(), llama, fleet.ID{Engine: "shared"}, &Query{Hashes: prompt}))
				assert.NoError(t, s.Query(context.Background(), &Query{ModelKey: key, Hashes: prompt}, &a))
				s.Models()
				s.Status()
				assert.NoError(t, s.Unregister(key, id))
			}
		})
	}
	running.Wait()
	require.Len(t, s.Models(), 1)
	require.Empty(t, s.Status())
}

func TestQueryAllocations(t *testing.T) {
	if lookuptest.Race {
		t.Skip("the race detector allocates")
	}
	s := newService(t, Config{Models: []Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	prompt, a := chain("p", 100), Answer{}
	for i := range 3 {
		require.NoError(t, s.Add(source(t, llama, "a", i, 16)))
		hold(t, s, llama, fleet.ID{Engine: "a", Rank: i}, gpu, first(prompt, 10*i+10))
	}
	for _, q := range []Query{{Hashes: prompt}, {Hashes: prompt, Engine: "a"}} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Query(context.Background(), &q, &a) }))
		require.Len(t, a.Holders, 3)
	}
}
