package blockhash

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newSGLang returns an SGLang whose configuration is right.
func newSGLang(t testing.TB, c SGLangConfig) *SGLang {
	h, err := NewSGLang(c)
	require.NoError(t, err)
	return h
}

func TestSGLangErrors(t *testing.T) {
	for _, size := range []int{0, -1, maxTokens + 1} {
		_, err := NewSGLang(SGLangConfig{PageSize: size})
		assert.ErrorContains(t, err, "page size")
	}
	for _, namespace := range []Namespace{{Salt: "\xff"}, {ExtraKey: ptr("\xff")}} {
		_, err := NewSGLang(SGLangConfig{PageSize: 1, Namespace: namespace})
		assert.ErrorContains(t, err, "not UTF-8")
	}
	h := newSGLang(t, SGLangConfig{PageSize: 1})
	got, err := h.AppendHashes([]byte("before"), []int64{1, -1})
	assert.ErrorIs(t, err, ErrToken)
	assert.Equal(t, "before", string(got))
	_, err = h.AppendFrom(nil, make([]byte, 8), []int64{1})
	assert.ErrorIs(t, err, ErrParent)
}

// Namespaces separate digests or short hashes, as the package's documentation says.
func TestNamespaces(t *testing.T) {
	tokens := []int64{1, 2, 3, 4}
	hash := func(storage bool, n Namespace) (digest string, short uint64) {
		h := newSGLang(t, SGLangConfig{PageSize: 4, Namespace: n, Storage: storage})
		got, err := h.AppendHashes(nil, tokens)
		require.NoError(t, err)
		return string(got), h.ShortHash(got)
	}
	key := ptr("key")
	plain, short := hash(false, Namespace{})
	stored, _ := hash(true, Namespace{})
	assert.Equal(t, plain, stored)

	keyed, keyedShort := hash(false, Namespace{ExtraKey: key})
	assert.Equal(t, plain, keyed, "the extra key does not count in events")
	assert.Equal(t, short, keyedShort)
	_, loraShort := hash(false, Namespace{ExtraKey: key, LoRA: true})
	assert.NotEqual(t, short, loraShort, "unless it belongs to an adapter")
	_, dynamoShort := hash(false, Namespace{ExtraKey: key, Dynamo: true})
	assert.Equal(t, loraShort, dynamoShort)
	keyedStored, _ := hash(true, Namespace{ExtraKey: key})
	assert.NotEqual(t, plain, keyedStored)

	salted, saltedShort := hash(false, Namespace{Salt: "salt"})
	assert.NotEqual(t, plain, salted)
	saltedDynamo, saltedDynamoShort := hash(false, Namespace{Salt: "salt", Dynamo: true})
	assert.Equal(t, salted, saltedDynamo)
	assert.NotEqual(t, saltedShort, saltedDynamoShort)
}

// FuzzSGLang splits prompts at each page. No argument makes an SGLang panic.
func FuzzSGLang(f *testing.F) {
	f.Add(4, true, true, true, "key", "salt", []byte("some tokens of a prompt"))
	f.Add(1, false, false, false, "", "", make([]byte, 20))
	f.Fuzz(func(t *testing.T, page int, bigrams, storage, lora bool, key, salt string, text []byte) {
		text = text[:min(len(text), maxFuzzTokens)]
		c := SGLangConfig{PageSize: page, Bigrams: bigrams, Storage: storage}
		c.Namespace = Namespace{Salt: salt, LoRA: lora, Dynamo: storage}
		if key != "" {
			c.Namespace.ExtraKey = &key
		}
		h, err := NewSGLang(c)
		if err != nil {
			return
		}
		tokens := make([]int64, len(text))
		for i, b := range text {
			tokens[i] = int64(b) << (b % 64)
		}
		want, err := h.AppendHashes(nil, tokens)
		if err != nil {
			return
		}
		clone := h.Clone()
		for cut := 1; cut < len(want)/32; cut++ {
			got, err := clone.AppendFrom(bytes.Clone(want[:cut*32]), want[(cut-1)*32:cut*32], tokens[cut*page:])
			require.NoError(t, err)
			require.Equal(t, want, got)
			h.ShortHash(got[cut*32:])
		}
	})
}
