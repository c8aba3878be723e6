package router

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/internal/fielderror"
)

// Hashing is how an engine hashes token ids. The fields have the same names in the configuration and in JSON.
type Hashing struct {
	Type string `json:"type,omitempty" yaml:"type"` // TypeVLLM or TypeSGLang; "": vLLM
	// Of vLLM, see blockhash.VLLMConfig.
	Release   string              `json:"release,omitempty" yaml:"release,omitempty"`
	Algorithm blockhash.Algorithm `json:"algorithm,omitempty" yaml:"algorithm,omitempty"`
	Seed      *string             `json:"seed,omitzero" yaml:"seed,omitempty"` // PYTHONHASHSEED, nil if it is not set
	Lookahead int                 `json:"lookahead,omitempty" yaml:"lookahead"`
	// Of SGLang.
	Bigrams bool `json:"bigrams,omitempty" yaml:"bigrams"` // with EAGLE
	Dynamo  bool `json:"dynamo,omitempty" yaml:"dynamo"`   // events have the format "dynamo"
}

// SetDefaults sets the type, in the case of ours: people write vLLM.
func (h *Hashing) SetDefaults() { h.Type = cmp.Or(strings.ToLower(h.Type), TypeVLLM) }

// check returns the length of a hash in bytes. Its errors name a field.
func (h *Hashing) check(blockSize int) (hashLen int, err error) {
	ofVLLM := h.Release != "" || h.Algorithm != "" || h.Seed != nil || h.Lookahead != 0
	switch h.Type {
	case TypeSGLang:
		if ofVLLM {
			return 0, fmt.Errorf("release, algorithm, seed and lookahead are vLLM's; remove them for %s", TypeSGLang)
		}
		_, err := blockhash.NewSGLang(blockhash.SGLangConfig{PageSize: blockSize})
		return blockhash.DigestLen, err
	case TypeVLLM:
		if h.Bigrams || h.Dynamo {
			return 0, fmt.Errorf("bigrams and dynamo are SGLang's; remove them for %s", TypeVLLM)
		}
		v, err := h.newVLLM(blockSize)
		switch {
		case errors.Is(err, blockhash.ErrRandomSeed):
			return 0, fielderror.New([]string{"seed"}, "has no seed, and these engines draw it at random; set PYTHONHASHSEED in them, and give it here")
		case err != nil:
			return 0, err
		}
		return v.HashLen(), nil
	}
	return 0, fielderror.New([]string{"type"}, "%.40q is no type of engine; known are %s and %s", h.Type, TypeVLLM, TypeSGLang)
}

func (h *Hashing) newVLLM(blockSize int) (*blockhash.VLLM, error) {
	return blockhash.NewVLLM(blockhash.VLLMConfig{
		Release: h.Release, Algorithm: h.Algorithm, Seed: h.Seed, BlockSize: blockSize, Lookahead: h.Lookahead,
	})
}

// piece is how many blocks are hashed at a time: 8 KiB of digests, some 0.1 ms.
const piece = 256

// tokenHashes computes the hashes of a prompt in pieces of whole blocks.
type tokenHashes struct {
	vllm    *blockhash.VLLM   // made once
	sglang  *blockhash.SGLang // made for each prompt; nil with vLLM
	events  bool              // SGLang: digests begin with the short form that events have
	size    int               // tokens of a block
	behind  int               // tokens behind a block that its hash depends on
	hashLen int
	tokens  []int64
	keys    *blockhash.ExtraKeys
	at      int    // position of the next block
	parent  []byte // digest before it
}

// begin prepares the hashes of the tokens of q for holders or, with storage, for the store. It fails with ErrNoHashing,
// ErrToken, ErrAdapter or the errors of package blockhash.
func (t *tokenHashes) begin(m *Model, q *Query, storage bool) error {
	h := m.Hash
	if h == nil {
		return fmt.Errorf("%w: model %q", ErrNoHashing, m.Name)
	}
	t.size, t.tokens, t.keys, t.at = m.Fleet.BlockSize, q.Tokens, q.Keys, 0
	if h.Type == TypeSGLang {
		return t.beginSGLang(h, q, storage)
	}
	if err := checkTokens(q.Tokens, math.MaxInt32); err != nil {
		return err
	}
	if t.vllm == nil {
		var err error
		if t.vllm, err = h.newVLLM(t.size); err != nil {
			return err
		}
	}
	if q.Keys != nil && q.Keys.LoRA != nil && q.Keys.LoRA.Path == "" && t.vllm.UsesLoRAPath() {
		return badField(ErrAdapter, "lora_path", "has no lora_path, on which the hashes of this release of vLLM depend; give it, too")
	}
	t.hashLen, t.behind = t.vllm.HashLen(), h.Lookahead
	t.parent = append(t.parent[:0], t.vllm.FirstParent()...)
	return nil
}

func (t *tokenHashes) beginSGLang(h *Hashing, q *Query, storage bool) error {
	if err := checkTokens(q.Tokens, math.MaxInt64); err != nil {
		return err
	}
	c := blockhash.SGLangConfig{PageSize: t.size, Bigrams: h.Bigrams, Namespace: blockhash.Namespace{Dynamo: h.Dynamo}, Storage: storage}
	if q.Keys != nil {
		if q.Keys.LoRA != nil || len(q.Keys.Items) > 0 || q.Keys.Embeds != nil {
			return badField(ErrAdapter, "lora_name", "SGLang hashes an id of the adapter that it draws; ask by hashes")
		}
		c.Namespace.Salt = q.Keys.Salt
	}
	var err error
	if t.sglang, err = blockhash.NewSGLang(c); err != nil {
		return err
	}
	t.events, t.hashLen, t.behind = !storage, blockhash.DigestLen, 0
	if h.Bigrams {
		t.behind = 1
	}
	t.parent = append(t.parent[:0], t.sglang.FirstPrior()...)
	return nil
}

// checkTokens refuses token ids that no engine has: negative ones, and those over last.
func checkTokens(tokens []int64, last int64) error {
	for i, id := range tokens {
		if id < 0 || id > last {
			return badField(ErrToken, "token_ids", "%d at position %d is no token id; ids are 0 to %d", id, i, last)
		}
	}
	return nil
}

// left returns the number of blocks that are not hashed yet.
func (t *tokenHashes) left() int { return max(len(t.tokens)-t.at-t.behind, 0) / t.size }

// next appends the hashes of the next blocks, at most n.
func (t *tokenHashes) next(dst []byte, n int) ([]byte, error) {
	n = min(n, t.left())
	tokens := t.tokens[t.at : t.at+n*t.size+t.behind]
	from := len(dst)
	var err error
	if t.sglang != nil {
		dst, err = t.sglang.AppendFrom(dst, t.parent, tokens)
	} else {
		dst, err = t.vllm.AppendFrom(dst, t.parent, t.at, tokens, t.keys)
	}
	if err != nil || n == 0 {
		return dst, err
	}
	t.at += n * t.size
	t.parent = append(t.parent[:0], dst[len(dst)-t.hashLen:]...)
	if t.sglang != nil && t.events {
		for digest := range slices.Chunk(dst[from:], t.hashLen) {
			binary.BigEndian.PutUint64(digest, t.sglang.ShortHash(digest))
		}
	}
	return dst, nil
}
