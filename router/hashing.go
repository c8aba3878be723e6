package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
)

// Hashing is how an engine hashes token ids. The fields have the same names in the configuration.
type Hashing struct {
	Type string `yaml:"type"` // TypeVLLM or TypeSGLang; "": vLLM
	// Of vLLM, see blockhash.VLLMConfig.
	Release   string              `yaml:"release,omitempty"`
	Algorithm blockhash.Algorithm `yaml:"algorithm,omitempty"`
	Seed      *string             `yaml:"seed,omitempty"` // PYTHONHASHSEED, nil if it is not set
	Lookahead int                 `yaml:"lookahead"`
	// Of SGLang.
	Bigrams bool `yaml:"bigrams"` // with EAGLE
	Dynamo  bool `yaml:"dynamo"`  // events have the format "dynamo"
}

// hasher computes the block hashes of one model's prompts. Safe for concurrent use.
type hasher struct {
	vllm   *blockhash.VLLM         // cloned for each scratch; nil with SGLang
	sglang *blockhash.SGLangConfig // without the request's namespace
}

// newHasher checks how tokens are hashed. Its errors name a field.
func newHasher(h *Hashing, blockSize int) (*hasher, error) {
	switch {
	case h.Type != "" && h.Type != TypeVLLM && h.Type != TypeSGLang:
		return nil, fielderror.New([]string{"type"}, "%.40q is no type of engine; known are %s and %s", h.Type, TypeVLLM, TypeSGLang)
	case h.Type != TypeSGLang && (h.Bigrams || h.Dynamo):
		return nil, fmt.Errorf("bigrams and dynamo are SGLang's; remove them for %s", TypeVLLM)
	case h.Type != TypeSGLang:
		v, err := blockhash.NewVLLM(blockhash.VLLMConfig{
			Release: h.Release, Algorithm: h.Algorithm, Seed: h.Seed, BlockSize: blockSize, Lookahead: h.Lookahead,
		})
		if errors.Is(err, blockhash.ErrRandomSeed) {
			err = fielderror.New([]string{"seed"}, "has no seed, and these engines draw it at random; set PYTHONHASHSEED in them, and give it here")
		}
		return &hasher{vllm: v}, err
	case h.Release != "" || h.Algorithm != "" || h.Seed != nil || h.Lookahead != 0:
		return nil, fmt.Errorf("release, algorithm, seed and lookahead are vLLM's; remove them for %s", TypeSGLang)
	}
	c := &blockhash.SGLangConfig{PageSize: blockSize, Bigrams: h.Bigrams, Namespace: blockhash.Namespace{Dynamo: h.Dynamo}}
	_, err := blockhash.NewSGLang(*c)
	return &hasher{sglang: c}, err
}

// hashLen returns the length of a digest in bytes.
func (h *hasher) hashLen() int {
	if h.sglang != nil {
		return blockhash.DigestLen
	}
	return h.vllm.HashLen()
}

// piece is how many blocks are hashed at a time: 8 KiB of digests, some 0.1 ms.
const piece = 256

// tokenHashes computes the hashes of a prompt in pieces of whole blocks.
type tokenHashes struct {
	vllm    *blockhash.VLLM
	sglang  *blockhash.SGLang
	short   bool // SGLang: as events have them
	size    int  // tokens of a block
	behind  int  // tokens behind a block that its hash depends on
	hashLen int  // of what next appends
	tokens  []int64
	keys    *blockhash.ExtraKeys
	at      int    // position of the next block
	parent  []byte // digest in front of it
}

// begin prepares the hashes of the tokens of q for holders or, with storage, for the store. It fails with ErrNoHashing,
// ErrToken, ErrAdapter or the errors of package blockhash.
func (t *tokenHashes) begin(state *modelState, q *Query, storage bool) error {
	h := state.hasher
	if h == nil {
		return fmt.Errorf("%w: model %q", ErrNoHashing, state.cfg.Name)
	}
	t.size, t.tokens, t.keys, t.at = state.cfg.Fleet.BlockSize, q.Tokens, q.Keys, 0
	if h.sglang != nil {
		return t.beginSGLang(h, q, storage)
	}
	if err := checkTokens(q.Tokens, math.MaxInt32); err != nil {
		return err
	}
	if t.vllm == nil {
		t.vllm = h.vllm.Clone()
	}
	if q.Keys != nil && q.Keys.LoRA != nil && q.Keys.LoRA.Path == "" && t.vllm.UsesLoRAPath() {
		return fmt.Errorf("%w: with this release of vLLM they depend on the path of the adapter; name that too", ErrAdapter)
	}
	t.sglang, t.hashLen, t.behind = nil, t.vllm.HashLen(), state.cfg.Hash.Lookahead
	t.parent = append(t.parent[:0], t.vllm.FirstParent()...)
	return nil
}

func (t *tokenHashes) beginSGLang(h *hasher, q *Query, storage bool) error {
	if err := checkTokens(q.Tokens, math.MaxInt64); err != nil {
		return err
	}
	c := *h.sglang
	c.Storage = storage
	if q.Keys != nil {
		if q.Keys.LoRA != nil || len(q.Keys.Items) > 0 || q.Keys.Embeds != nil {
			return fmt.Errorf("%w: SGLang hashes an id that it draws; ask by hashes", ErrAdapter)
		}
		c.Namespace.Salt = q.Keys.Salt
	}
	var err error
	if t.sglang, err = blockhash.NewSGLang(c); err != nil {
		return err
	}
	t.short, t.hashLen, t.behind = !storage, blockhash.DigestLen, 0
	if t.short {
		t.hashLen = 8
	}
	if c.Bigrams {
		t.behind = 1
	}
	t.parent = append(t.parent[:0], t.sglang.FirstPrior()...)
	return nil
}

// checkTokens refuses token ids that no engine has: negative ones, and those over last.
func checkTokens(tokens []int64, last int64) error {
	for i, id := range tokens {
		if id < 0 || id > last {
			return fmt.Errorf("%w: %d at position %d; ids are 0 to %d", ErrToken, id, i, last)
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
	if !t.short {
		t.parent = append(t.parent[:0], dst[len(dst)-t.hashLen:]...)
		return dst, nil
	}
	t.parent = append(t.parent[:0], dst[len(dst)-blockhash.DigestLen:]...)
	return t.shorten(dst, from), nil
}

// shorten replaces the digests behind from by what events have of them.
func (t *tokenHashes) shorten(dst []byte, from int) []byte {
	end := from
	for digest := range slices.Chunk(dst[from:], blockhash.DigestLen) {
		binary.BigEndian.PutUint64(dst[end:], t.sglang.ShortHash(digest))
		end += 8
	}
	return dst[:end]
}

// hash returns the hashes of all tokens of q, as holders have them or, with storage, as the store has. They are borrowed from
// the scratch.
func (p *prompt) hash(q *Query, storage bool) (coordinator.Hashes, error) {
	t := &p.scratch.tokens
	if err := t.begin(p.state, q, storage); err != nil {
		return coordinator.Hashes{}, err
	}
	var err error
	p.scratch.hashes, err = t.next(p.scratch.hashes[:0], t.left())
	return coordinator.NewHashes(p.scratch.hashes, t.hashLen), err
}
