package blockhash

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
)

func ptr[T any](v T) *T { return &v }

// newVLLM returns a VLLM whose configuration is right.
func newVLLM(t testing.TB, c VLLMConfig) *VLLM {
	h, err := NewVLLM(c)
	require.NoError(t, err)
	return h
}

func TestNewVLLMErrors(t *testing.T) {
	for _, test := range []struct {
		c    VLLMConfig
		want string
	}{
		{VLLMConfig{}, "block size 0, want 1 to 268435456"},
		{VLLMConfig{BlockSize: -1}, "block size -1"},
		{VLLMConfig{BlockSize: maxTokens + 1}, "block size 268435457"},
		{VLLMConfig{BlockSize: 1, Lookahead: maxTokens + 1}, "268435457 lookahead tokens"},
		{VLLMConfig{BlockSize: 1, Algorithm: "md5"}, `unknown algorithm "md5", known are sha256, sha256_cbor, xxhash, xxhash_cbor`},
		{VLLMConfig{BlockSize: 1, Release: conformance.UnknownRelease}, `unknown vLLM release "` + conformance.UnknownRelease + `", known are 0.24.0`},
		{VLLMConfig{BlockSize: 1, Release: "v0.33"}, `write "0.33.0"`},
		{VLLMConfig{BlockSize: 1, Release: "0.23.0"}, "older than 0.24.0"},
		{VLLMConfig{BlockSize: 1, Lookahead: -1}, "-1 lookahead tokens"},
		{VLLMConfig{BlockSize: 1, Release: "0.32.0", Lookahead: 1}, "vLLM 0.32.0 cover no lookahead tokens"},
		{VLLMConfig{BlockSize: 1, Seed: ptr("\xff")}, "not UTF-8"},
	} {
		_, err := NewVLLM(test.c)
		require.ErrorContains(t, err, test.want)
	}
}

// Only from 0.29 on, and only for the cryptographic algorithms, is there a seed by default.
func TestRandomSeed(t *testing.T) {
	for _, release := range coordinator.Releases() {
		for _, algorithm := range Algorithms() {
			c := VLLMConfig{Release: release, Algorithm: Algorithm(algorithm), BlockSize: 16}
			_, err := NewVLLM(c)
			if release >= "0.29.0" && strings.HasPrefix(algorithm, "sha256") {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, ErrRandomSeed, "%s %s", release, algorithm)
			}
			c.Seed = ptr("0")
			newVLLM(t, c)
		}
	}
}

// A change of a release that is not known would apply to all.
func TestChangesAreOfReleases(t *testing.T) {
	for _, change := range changes {
		assert.Contains(t, coordinator.Releases(), change.since)
	}
}

func TestVLLMArgumentErrors(t *testing.T) {
	h := newVLLM(t, VLLMConfig{BlockSize: 4})
	dst := []byte("before")
	tokens := make([]int64, 8)
	for _, test := range []struct {
		parent []byte
		start  int
		keys   *ExtraKeys
		want   error
	}{
		{make([]byte, 16), 0, nil, ErrParent},
		{nil, 0, nil, ErrParent},
		{make([]byte, 32), 3, nil, ErrStart},
		{make([]byte, 32), -4, nil, ErrStart},
		{make([]byte, 32), math.MaxInt &^ 3, nil, ErrStart},
		{make([]byte, 32), 0, &ExtraKeys{Salt: "\xff"}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{LoRA: &LoRA{Name: "\xff"}}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{LoRA: &LoRA{Path: "\xff"}}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{Items: []Item{{"\xff", 0, 1}}}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{Items: []Item{{"a", -1, 1}}}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{Items: []Item{{"a", 1, -1}}}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{Items: []Item{{"a", 1, math.MaxInt}}}, ErrExtraKeys},
		{make([]byte, 32), 0, &ExtraKeys{Items: []Item{{"a", 5, 1}, {"b", 4, 1}}}, ErrExtraKeys},
	} {
		got, err := h.AppendFrom(dst, test.parent, test.start, tokens, test.keys)
		assert.ErrorIs(t, err, test.want)
		assert.Equal(t, "before", string(got))
	}
}

// Keys count where vLLM's rules say so, and nowhere else.
func TestExtraKeysChangeHashes(t *testing.T) {
	tokens := make([]int64, 12)
	hashes := func(release string, keys *ExtraKeys) []byte {
		h := newVLLM(t, VLLMConfig{Release: release, BlockSize: 4, Seed: ptr("0")})
		got, err := h.AppendHashes(nil, tokens, keys)
		require.NoError(t, err)
		return got
	}
	lora := func(path string) *ExtraKeys { return &ExtraKeys{LoRA: &LoRA{"name", path}} }
	assert.Equal(t, hashes("0.30.0", lora("a")), hashes("0.30.0", lora("b")), "the path counts from 0.31 on")
	assert.NotEqual(t, hashes("0.31.0", lora("a")), hashes("0.31.0", lora("b")))
	assert.NotEqual(t, hashes("0.31.0", nil), hashes("0.31.0", &ExtraKeys{Salt: "s"}))

	plain := hashes("", nil)
	item := hashes("", &ExtraKeys{Items: []Item{{"image", 4, 4}}})
	assert.Equal(t, plain[:32], item[:32], "it is not in the first block")
	assert.NotEqual(t, plain[32:64], item[32:64])
	assert.Equal(t, plain, hashes("", &ExtraKeys{Items: []Item{{"image", 12, 4}}}), "it is behind all blocks")
}

// With lookahead tokens a block is hashed once they are there.
func TestLookahead(t *testing.T) {
	h := newVLLM(t, VLLMConfig{BlockSize: 4, Lookahead: 2})
	assert.Equal(t, []int{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2}, func() (n []int) {
		for tokens := range 11 {
			n = append(n, h.NumHashes(tokens))
		}
		return n
	}())
	a, err := h.AppendHashes(nil, []int64{1, 2, 3, 4, 5, 6}, nil)
	require.NoError(t, err)
	b, err := h.AppendHashes(nil, []int64{1, 2, 3, 4, 5, 7}, nil)
	require.NoError(t, err)
	assert.Len(t, a, 32)
	assert.NotEqual(t, a, b)
}

// maxFuzzTokens bounds the prompts of fuzz targets: the time to split one grows with its square.
const maxFuzzTokens = 200

// FuzzVLLM splits prompts at each block. No argument makes a VLLM panic.
func FuzzVLLM(f *testing.F) {
	f.Add(uint8(9), uint8(0), 4, 1, []byte("some tokens of a prompt"), "id", 3, 9, "salt", "name", -1)
	f.Add(uint8(0), uint8(1), 16, 0, make([]byte, 99), "", 0, 0, "", "", 64)
	f.Fuzz(func(t *testing.T, release, algorithm uint8, block, lookahead int, text []byte, id string, offset, length int, salt, lora string, start int) {
		text = text[:min(len(text), maxFuzzTokens)]
		releases := coordinator.Releases()
		h, err := NewVLLM(VLLMConfig{
			Release:   releases[int(release)%len(releases)],
			Algorithm: Algorithm(Algorithms()[algorithm%4]),
			Seed:      &id, BlockSize: block, Lookahead: lookahead,
		})
		if err != nil {
			return
		}
		tokens := make([]int64, len(text))
		for i, c := range text {
			tokens[i] = int64(c) << (c % 64)
		}
		keys := &ExtraKeys{
			LoRA: &LoRA{lora, lora}, Salt: salt, Embeds: [][32]byte{{1}},
			Items: []Item{{id, offset, length}, {salt, offset, 2}, {id, length, offset}},
		}
		if lora == "" {
			*keys = ExtraKeys{Salt: salt, Items: keys.Items[:1]}
		}
		if start >= 0 && start < 1<<20 { // the time to skip blocks grows with their number
			_, _ = h.AppendFrom(nil, h.firstParent, start, tokens, keys)
		}
		want, err := h.AppendHashes(nil, tokens, keys)
		if err != nil {
			return
		}
		size := h.HashLen()
		for cut := 1; cut < len(want)/size; cut++ {
			parent := want[(cut-1)*size : cut*size]
			got, err := h.AppendFrom(slices.Clone(want[:cut*size]), parent, cut*block, tokens[cut*block:], keys)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}
