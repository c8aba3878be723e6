package coordinator

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/conformance"
)

func TestPoolDefaults(t *testing.T) {
	got := must(t, Pool{TPSize: 4}).Pool()
	assert.Equal(t, Pool{
		HashBlockSize: 16, SchedulerBlockSize: 16, TPSize: 4, PPSize: 1, PCPSize: 1, DCPSize: 1, NumKVHead: 4,
		Groups: []Group{{Kind: FullAttention, BlockSize: 16}},
	}, got)
	got = must(t, Pool{HashBlockSize: 4, Groups: []Group{full(12), window(8, 9), mamba(4)}}).Pool()
	assert.Equal(t, 24, got.SchedulerBlockSize, "lcm of all")
}

func TestPoolIsACopy(t *testing.T) {
	given := Pool{RetentionInterval: retain(64), Groups: []Group{full(16)}}
	c := must(t, given)
	given.Groups[0].BlockSize = 99
	*given.RetentionInterval = 5
	got := c.Pool()
	assert.Equal(t, 16, got.Groups[0].BlockSize)
	got.Groups[0].BlockSize = 98
	*got.RetentionInterval = 6
	assert.Equal(t, 16, c.Pool().Groups[0].BlockSize)
	assert.Equal(t, 64, *c.Pool().RetentionInterval)
}

func TestPoolRefusals(t *testing.T) {
	group := func(g Group) Pool { return Pool{Groups: []Group{full(16), g}} }
	for _, tc := range []struct {
		name    string
		pool    Pool
		message string
	}{
		{"negative hash block", Pool{HashBlockSize: -1}, "hash_block_size is -1"},
		{"negative scheduler block", Pool{SchedulerBlockSize: -16}, "scheduler_block_size is -16"},
		{"negative ranks", Pool{TPSize: -1}, "tp_size is -1"},
		{"negative own rank", Pool{DCPRank: -2}, "dcp_rank is -2"},
		{"too many ranks", Pool{TPSize: 1 << 10, PPSize: 1 << 10}, "at most 16384 ranks"},
		{"too many group ranks", Pool{TPSize: 1 << 14, Groups: slices.Repeat([]Group{full(16)}, 65)}, "ranks is 1064960, at most 1048576"},
		{"negative heads", Pool{NumKVHead: -1}, "num_kv_head is -1"},
		{"negative interval", Pool{RetentionInterval: retain(-1)}, "retention_interval is -1"},
		{"too many shards", Pool{VLLM: NewestRelease(), StoreTPSize: new(1 << 30)}, "store_tp_size: 1073741824 shards on 1 pipeline ranks"},
		{"a huge prefill size", Pool{VLLM: NewestRelease(), EnableStoreTPLCM: true, PrefillTPSizes: []int{2, 1 << 30}}, "prefill_tp_sizes[1]: 1073741824 is too large"},
		{"an unknown release", Pool{VLLM: "0.24.1"}, `unknown vLLM release "0.24.1"`},
		{"a release in another form", Pool{VLLM: "v0.33.0"}, `"v0.33.0" is not the name of a vLLM release, write "0.33.0"`},
		{"a release without its last number", Pool{VLLM: "0.33"}, `write "0.33.0"`},
		{"a build of a release", Pool{VLLM: "0.33.0+cu129"}, `write "0.33.0"`},
		{"an old release", Pool{VLLM: "0.23.0"}, "vLLM 0.23.0 is older than 0.24.0"},
		{"no release", Pool{VLLM: "main"}, `"main" is not the name of a vLLM release, known are 0.24.0, `},
		{"a newer release", Pool{VLLM: conformance.UnknownRelease}, "; write the one of which the engine's vLLM is a build, or upgrade hitline"},
		{"a post release", Pool{VLLM: "0.32.0.post1"}, `unknown vLLM release "0.32.0.post1"`},
		{"a commit", Pool{VLLM: "2026-06-20"}, "known are 0.24.0, "},
		{"a field of a later release", Pool{VLLM: "0.31.0", CacheHitAlignmentTokens: 16}, "cache_hit_alignment_tokens exists from vLLM 0.32.0 on, vllm is 0.31.0"},
		{"a field that only releases have", Pool{StoreTPSize: new(2)}, "store_tp_size exists from vLLM 0.30.0 on: set vllm to the engine's release"},
		{"a later field of a group", Pool{VLLM: "0.29.0", Groups: []Group{{Kind: SlidingWindowMLA, BlockSize: 16, SlidingWindow: 16, BoundedReplay: true}}}, "groups[0].bounded_replay exists from vLLM 0.30.0 on"},
		{"a later kind", Pool{VLLM: "0.24.0", Groups: []Group{{Kind: RSWA, BlockSize: 16}}}, "groups[0].kind: kind rswa exists from vLLM 0.25.0 on, vllm is 0.24.0"},
		{"an earlier kind", Pool{VLLM: "0.32.0", Groups: []Group{full(16), {Kind: KPoolTail, BlockSize: 16}}}, "kind kpool_tail exists from vLLM 0.30.0 to 0.31.0"},
		{"no alignment of an engine", Pool{VLLM: "0.32.0", SchedulerBlockSize: 64, CacheHitAlignmentTokens: 32}, "cache_hit_alignment_tokens is 32, engines have hash_block_size (16) or scheduler_block_size (64)"},
		{"unknown kind", group(Group{Kind: numKinds, BlockSize: 16}), "groups[1].kind: unknown kind"},
		{"no block size", group(Group{}), "groups[1].block_size: block_size is 0"},
		{"negative block size", group(full(-16)), "groups[1].block_size: block_size is -16"},
		{"no window", group(window(16, 0)), "sliding_window needs sliding_window"},
		{"negative window", group(window(16, -1)), "sliding_window is -1"},
		{"a window for mamba", group(Group{Kind: Mamba, BlockSize: 16, SlidingWindow: 5}), "mamba has no sliding_window"},
		{"no attention chunk", group(local(16, 0)), "needs attention_chunk_size"},
		{"attention chunk for a window", group(Group{Kind: SlidingWindow, BlockSize: 16, SlidingWindow: 5, AttentionChunkSize: 16}), "has no attention_chunk_size"},
		{"unknown cache mode", group(Group{Kind: Mamba, BlockSize: 16, MambaCacheMode: "some"}), "mamba_cache_mode is \"some\""},
		{"cache mode for full attention", group(align(full(16))), "has no mamba_cache_mode"},
		{"no common multiple", Pool{HashBlockSize: 1, Groups: []Group{full(99991), full(99989)}}, "no common multiple"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.pool)
			require.ErrorIs(t, err, ErrInvalidPool)
			assert.NotErrorIs(t, err, ErrPrecondition, "not a refusal of the reference")
			assert.ErrorContains(t, err, tc.message)
		})
	}
}

// The reference makes three checks in this order; each pool fails its check and
// all that follow.
func TestPoolRefusalsOfTheReference(t *testing.T) {
	for _, tc := range []struct {
		pool    Pool
		message string
	}{
		{Pool{SchedulerBlockSize: 17, Groups: []Group{full(16), full(24)}}, "groups[1].block_size: block_size 24 is not a multiple of hash_block_size 16"},
		{Pool{SchedulerBlockSize: 17, Groups: []Group{full(32)}}, "scheduler_block_size 17 is not a multiple of hash_block_size 16"},
		{Pool{SchedulerBlockSize: 48, Groups: []Group{full(16), full(32)}}, "scheduler_block_size 48 is not a multiple of block_size 32 of groups[1]"},
	} {
		_, err := New(tc.pool)
		require.ErrorIs(t, err, ErrPrecondition)
		require.ErrorIs(t, err, ErrInvalidPool)
		assert.ErrorContains(t, err, tc.message)
	}
}

func TestKindNames(t *testing.T) {
	for k := FullAttention; k <= Mamba; k++ {
		parsed, err := ParseKind(k.String())
		require.NoError(t, err)
		assert.Equal(t, k, parsed)
	}
	_, err := ParseKind("cross_attention")
	require.ErrorContains(t, err, "leave its group out")
	_, err = ParseKind("flash")
	require.ErrorContains(t, err, `unknown kind "flash"`)
	_, err = json.Marshal(Kind(40))
	require.Error(t, err)
	assert.Equal(t, "kind(40)", Kind(40).String())
}

func TestPoolText(t *testing.T) {
	const text = `
model_name: org/m
hash_block_size: 16
retention_interval: 64
vllm: 0.28.0
groups:
  - {kind: full_attention, block_size: 16}
  - {kind: sliding_window, block_size: 16, sliding_window: 1024, is_eagle_group: true}
  - {kind: mamba, block_size: 32, mamba_cache_mode: align, variant: 3, uniform: true}
`
	want := Pool{
		ModelName: "org/m", HashBlockSize: 16, RetentionInterval: retain(64), VLLM: "0.28.0",
		Groups: []Group{
			full(16), eagle(window(16, 1024)),
			{Kind: Mamba, BlockSize: 32, MambaCacheMode: "align", Variant: 3, Uniform: true},
		},
	}
	var fromYAML Pool
	require.NoError(t, yaml.UnmarshalWithOptions([]byte(text), &fromYAML, yaml.Strict()))
	assert.Equal(t, want, fromYAML)

	encoded, err := json.Marshal(want)
	require.NoError(t, err)
	var fromJSON Pool
	require.NoError(t, json.Unmarshal(encoded, &fromJSON))
	assert.Equal(t, want, fromJSON)

	assert.ErrorContains(t, yaml.Unmarshal([]byte("groups: [{kind: cross_attention}]"), &fromYAML), "cross_attention")
}

func TestIntrospection(t *testing.T) {
	c := must(t, Pool{HashBlockSize: 8, Groups: []Group{window(8, 9), full(32), eagle(window(8, 9))}})
	assert.Equal(t, 3, c.NumGroups())
	assert.Equal(t, int64(32), c.Alignment())
	assert.False(t, c.FineGrained())
	assert.Equal(t, []int{1, 4}, []int{c.Stride(0), c.Stride(1)})
	assert.Equal(t, 4, c.KeyStride(1))
	assert.Equal(t, []bool{true, false, true}, []bool{c.IsEagle(0), c.IsEagle(1), c.IsEagle(2)}, "one flag counts for equal specs")
	assert.Equal(t, 3, c.Positions(1, 96, 15))
	assert.Equal(t, 2, c.Positions(1, 64, 15))

	c = must(t, Pool{VLLM: "0.28.0", HashBlockSize: 8, Groups: []Group{full(32), align(mamba(16))}})
	assert.True(t, c.FineGrained())
	assert.Equal(t, int64(8), c.Alignment())
	assert.Equal(t, []int{4, 1}, []int{c.Stride(0), c.KeyStride(0)})
	assert.True(t, c.KeyMask(1).IsAll())
}

// The groups of a pool are copies, also what they point to.
func TestPoolGroupsAreCopies(t *testing.T) {
	mine := Pool{VLLM: NewestRelease(), Groups: []Group{full(16), {Kind: FullAttention, BlockSize: 16, EnableKVTransfer: new(false)}}}
	c := must(t, mine)
	require.Equal(t, 1, c.NumGroups())
	*c.Pool().Groups[1].EnableKVTransfer = true
	*mine.Groups[1].EnableKVTransfer = true
	require.False(t, *c.Pool().Groups[1].EnableKVTransfer)
}

func TestIsNewer(t *testing.T) {
	for a, newer := range map[string]bool{"0.33.1": true, "0.34.0": true, "1.0": true, "0.33.0": false, "0.32.9": false, "0.9": false, "dev": false, "": false} {
		assert.Equal(t, newer, isNewer(a, "0.33.0"), a)
	}
}

func TestFittingReleases(t *testing.T) {
	for want, pool := range map[string]Pool{
		"0.24.0":                 {},
		"0.27.0, 0.27.1, 0.28.0": {VLLM: "0.28.0"},
		"0.30.0, 0.31.0":         {VLLM: "0.31.0"},
	} {
		pool := must(t, pool).Pool()
		assert.Equal(t, want, pool.FittingReleases())
	}
}

func TestWarnings(t *testing.T) {
	hybrid := []Group{full(32), align(mamba(32))}
	for _, tc := range []struct {
		pool Pool
		want string
	}{
		{Pool{VLLM: NewestRelease()}, ""},
		{Pool{TPSize: 8, NumKVHead: 3}, "num_kv_head is 3 and tp_size 8: neither divides the other"},
		{Pool{TPSize: 8, NumKVHead: 4}, ""},
		{Pool{TPSize: 2, NumKVHead: 8}, ""},
		{Pool{TPSize: 8, NumKVHead: 1}, ""},
		{Pool{TPSize: 6}, ""},
		{Pool{VLLM: "0.32.0", Groups: hybrid}, "cache_hit_alignment_tokens is not set: engines with these groups have 16"},
		{Pool{VLLM: "0.32.0", Groups: hybrid, CacheHitAlignmentTokens: 32}, ""},
		{Pool{VLLM: "0.31.0", Groups: hybrid}, ""},
		{Pool{VLLM: "0.32.0", Groups: append(hybrid, window(32, 64))}, ""},
		{Pool{VLLM: "0.32.0", Groups: hybrid[1:]}, ""},
	} {
		warnings := must(t, tc.pool).Warnings()
		if tc.want == "" {
			assert.Empty(t, warnings)
			continue
		}
		require.Len(t, warnings, 1)
		assert.Contains(t, warnings[0], tc.want)
	}
}

// vLLM's events do not tell all kinds apart.
func TestMayBeNamed(t *testing.T) {
	full := []Kind{FullAttention, MLAAttention}
	windows := []Kind{SlidingWindow, SlidingWindowMLA}
	others := []Kind{ChunkedLocalAttention, Mamba}
	all := slices.Concat(full, windows, others)
	for name, want := range map[string][]Kind{
		"full_attention": full, "mla_attention": full, "sink_full_attention": full,
		"sliding_window": windows, "sliding_window_mla": windows,
		"chunked_local_attention": others[:1], "mamba": others[1:], "": all, "not known": all,
	} {
		for _, k := range all {
			assert.Equal(t, slices.Contains(want, k), k.MayBeNamed(name), "%s, %q", k, name)
		}
	}
}
