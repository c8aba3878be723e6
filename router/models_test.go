package router

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
)

// A model that comes with a source has the hash and the groups of the source, also at a replica. Later sources have none or
// the same.
func TestModelOfSource(t *testing.T) {
	cbor := Hashing{Algorithm: "sha256_cbor"}
	p := eventstest.New(t)
	p.Publish(true, storedBy(t, cbor, 1))
	src := engineSource(p, "a", 0)
	src.Hash = &Hashing{Type: "vLLM", Algorithm: "sha256_cbor"}
	src.Groups = []coordinator.Group{{BlockSize: 16}, {Kind: coordinator.ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: 64}}
	text, err := json.Marshal(src)
	require.NoError(t, err)
	var again Source
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, src, again)

	byTokens := func(s *Service) string { return ask(t, s, Query{ModelKey: llama, Tokens: promptBlock(1)}) }
	allow := []string{"tcp://127.0.0.1:*"}
	one := newService(t, Config{Allow: allow})
	require.NoError(t, one.Register(src))
	awaitNext(t, one, "a/0", 1)
	require.Empty(t, byTokens(one), "nothing of the second group is held")
	second := storedBy(t, cbor, 1)
	second["group_idx"] = 1
	p.Publish(true, second)
	awaitNext(t, one, "a/0", 2)
	require.Equal(t, "a/0=16(GPU=16) ", byTokens(one))
	require.Equal(t, HashesAgree, status(t, one, "a/0").Hashes)

	other := source(t, llama, "b", 0, 16)
	other.Hash = &Hashing{}
	require.ErrorIs(t, one.Register(other), ErrOtherType)
	other.Hash, other.Groups = nil, src.Groups[:1]
	require.ErrorIs(t, one.Register(other), ErrOtherType)
	same := source(t, llama, "b", 0, 16)
	same.Hash = &cbor
	require.NoError(t, one.Register(same))
	wrong := source(t, ModelKey{Name: "wrong"}, "c", 0, 16)
	wrong.Type, wrong.Hash = TypeVLLM, &Hashing{Type: TypeSGLang}
	require.ErrorIs(t, one.Register(wrong), ErrOtherType)
	wrong.Hash = &Hashing{Algorithm: "md5"}
	require.ErrorContains(t, one.Register(wrong), "hash.algorithm")

	two := newService(t, Config{Allow: allow})
	require.NoError(t, two.LoadDump(bytes.NewReader(dumpOf(t, one))))
	require.NoError(t, two.Register(src))
	awaitNext(t, two, "a/0", 2)
	require.Equal(t, "a/0=16(GPU=16) ", byTokens(two))
}
