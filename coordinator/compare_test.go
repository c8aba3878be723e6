package coordinator

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A field that is set to zero is not one that is missing.
func TestCompareZeroValues(t *testing.T) {
	plain := Pool{VLLM: NewestRelease(), Groups: []Group{full(16), window(16, 32)}}
	for field, described := range map[string]Pool{
		"store_tp_size":                {VLLM: NewestRelease(), StoreTPSize: new(0), Groups: plain.Groups},
		"groups[1].enable_kv_transfer": {VLLM: NewestRelease(), Groups: []Group{full(16), {Kind: SlidingWindow, BlockSize: 16, SlidingWindow: 32, EnableKVTransfer: new(false)}}},
	} {
		differences := must(t, plain).Compare(plain, must(t, described))
		require.NotEmpty(t, differences, field)
		assert.Equal(t, field, differences[0].Field)
		assert.Empty(t, must(t, described).Compare(described, must(t, described)))
	}
	assert.Empty(t, must(t, plain).Compare(plain, must(t, Pool{VLLM: NewestRelease(), Groups: []Group{{BlockSize: 16, EnableKVTransfer: new(true)}, window(16, 32)}})))
}

// Of a model's name the component counts that keys have.
func TestCompareModels(t *testing.T) {
	named := func(model string) Pool { return Pool{VLLM: NewestRelease(), ModelName: model} }
	for described, want := range map[string][]Difference{
		"org/llama": nil, "llama": nil, "/models/llama/": nil,
		"qwen/": {newDifference("model_name", `"org/llama/"`, `"qwen/"`)},
	} {
		configured := named("org/llama/")
		assert.Equal(t, want, must(t, configured).Compare(configured, must(t, named(described))))
	}
}

// The default layout is no difference beside one.
func TestCompareLayout(t *testing.T) {
	for layout, want := range map[string][]Difference{
		"LBHNC": {newDifference("tp_size", "2", "1")},
		"HND":   {newDifference("kv_cache_layout", `"LBHNC"`, `"HND"`), newDifference("tp_size", "2", "1")},
	} {
		configured := Pool{VLLM: NewestRelease(), TPSize: 2, NumKVHead: 8}
		described := Pool{VLLM: NewestRelease(), NumKVHead: 8, KVCacheLayout: layout}
		assert.Equal(t, want, must(t, configured).Compare(configured, must(t, described)))
	}
}

// Where the release alone differs, it is named, and no keys that are equal.
func TestCompareReleases(t *testing.T) {
	configured := Pool{VLLM: NewestRelease()}
	want := []Difference{newDifference("vllm", text(NewestRelease()), `"0.32.0"`)}
	assert.Equal(t, want, must(t, configured).Compare(configured, must(t, Pool{VLLM: "0.32.0"})))
}

// The values of a difference are those of the pool's own JSON.
func TestDifferencesAreJSON(t *testing.T) {
	configured := Pool{
		VLLM: NewestRelease(), ModelName: "ll<a>ma", TPSize: 2, NumKVHead: 8, UseEagle: true, PrefillTPSizes: []int{2, 8}, StoreTPSize: new(8),
		CachePrefix: "prefix", Groups: []Group{full(16), window(16, 32)},
	}
	described := Pool{VLLM: "0.32.0", TPSize: 4, NumKVHead: 8, StoreTPSize: new(4), Groups: []Group{full(32), full(32)}}
	c, other := must(t, configured), must(t, described)
	differences := c.Compare(configured, other)
	require.Greater(t, len(differences), 8)
	fields := func(pool Pool) (values map[string]any) {
		text, err := json.Marshal(pool)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &values))
		for g, group := range values["groups"].([]any) {
			for name, value := range group.(map[string]any) {
				values[groupPath(g)+"."+name] = value
			}
		}
		return values
	}
	want, got := fields(c.Pool()), fields(other.Pool())
	text, err := json.Marshal(differences)
	require.NoError(t, err)
	var decoded []struct {
		Field                 string
		Configured, Described any
	}
	require.NoError(t, json.Unmarshal(text, &decoded))
	for i, d := range decoded {
		require.Equal(t, want[d.Field], d.Configured, d.Field)
		require.Equal(t, got[d.Field], d.Described, d.Field)
		require.NotContains(t, differences[i].String(), "null")
	}
	require.Contains(t, differences, newDifference("cache_prefix", `"prefix"`, ""))
	require.Equal(t, `cache_prefix is "prefix", described as none`, newDifference("cache_prefix", `"prefix"`, "").String())
}

// Pools that do not differ ask for the same keys and have the same answers.
func TestCompareAgainstAnswers(t *testing.T) {
	skipUnderRace(t)
	rng := rand.New(rand.NewPCG(3, 17))
	equal, different := 0, 0
	for range 20000 {
		data := make([]byte, 60)
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		a := (&source{data: data}).pool()
		for range 1 + rng.IntN(2) {
			data[rng.IntN(24)] = byte(rng.IntN(4))
		}
		b := (&source{data: data}).pool()
		a.VLLM, b.VLLM = "0.28.0", "0.28.0"
		first, err := New(a)
		if err != nil {
			continue
		}
		second, err := New(b)
		if err != nil {
			continue
		}
		if len(first.Compare(a, second)) > 0 {
			different++
			continue
		}
		equal++
		require.Equal(t, first.NumGroups(), second.NumGroups())
		n := 64
		p := Presence{NumHashes: n}
		for range first.groups {
			p.Bits = append(p.Bits, []uint64{rng.Uint64() | rng.Uint64() | rng.Uint64()})
		}
		for tokens := int64(0); tokens < int64(n*a.HashBlockSize); tokens += first.Alignment() {
			want, wantErr := first.FindHit(&p, tokens, true, new(Scratch))
			hit, err := second.FindHit(&p, tokens, true, new(Scratch))
			require.Equal(t, errorClass(wantErr), errorClass(err))
			require.Equal(t, want, hit, "%+v\n%+v", a, b)
		}
		for g := range first.NumGroups() {
			require.Equal(t, first.groups[g].prefixes, second.groups[g].prefixes)
			require.Equal(t, first.KeyMask(g), second.KeyMask(g))
		}
	}
	require.Greater(t, equal, 200)
	require.Greater(t, different, 200)
}

func TestNumRanks(t *testing.T) {
	for _, pool := range []Pool{
		{}, {TPSize: 8, PPSize: 2}, {VLLM: "0.28.0", TPSize: 4, PCPSize: 2, Groups: []Group{full(16), mamba(16)}},
		{VLLM: NewestRelease(), TPSize: 2, NumKVHead: 8, StoreTPSize: new(8)},
	} {
		c, ranks := must(t, pool), 0
		for g := range c.NumGroups() {
			ranks += len(c.Ranks(g))
		}
		assert.LessOrEqual(t, int64(ranks), pool.NumRanks())
	}
	assert.Positive(t, Pool{TPSize: math.MaxInt/2 + 1, PPSize: math.MaxInt/2 + 1, Groups: make([]Group, 1000)}.NumRanks())
}
