package blockhash

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/hitline/hitline/internal/fielderror"
)

// Algorithm is a value of vLLM's --prefix-caching-hash-algo.
type Algorithm string

// The algorithms: a hash function over pickle, or over CBOR.
const (
	SHA256     Algorithm = "sha256" // vLLM's default
	SHA256CBOR Algorithm = "sha256_cbor"
	XXHash     Algorithm = "xxhash"
	XXHashCBOR Algorithm = "xxhash_cbor"
)

// Algorithms returns the names of all algorithms. The caller owns the slice.
func Algorithms() []string {
	return []string{string(SHA256), string(SHA256CBOR), string(XXHash), string(XXHashCBOR)}
}

// Errors of wrong configurations and arguments.
var (
	ErrRandomSeed = errors.New("the engine draws the seed of its hashes at random; " +
		"set PYTHONHASHSEED in the engine, and the same seed here")
	ErrParent    = errors.New("the parent has another length than the hashes")
	ErrStart     = errors.New("hashing must start at the beginning of a block")
	ErrToken     = errors.New("negative token id")
	ErrExtraKeys = errors.New("wrong extra keys")
)

// defaultSeed is the seed from 0.29.0 on if PYTHONHASHSEED is not set.
const defaultSeed = "vllm-none-hash"

// maxTokens bounds a block and its lookahead tokens, so that positions in a prompt fit into an
// int.
const maxTokens = 1 << 28

// VLLMConfig is what the hashes of an engine depend on.
type VLLMConfig struct {
	Release   string    // as coordinator.Releases has them, "" is the newest one
	Algorithm Algorithm // "" is SHA256
	// Seed is the engine's PYTHONHASHSEED, nil if it is not set.
	Seed *string
	// BlockSize is the engine's hash_block_size in tokens.
	BlockSize int
	// Lookahead is the engine's number of lookahead tokens of hashes, from 0.33.0 on.
	Lookahead int
}

// VLLM computes the block hashes of one engine's configuration. It is not safe for concurrent
// use, see Clone.
type VLLM struct {
	rules                rules
	blockSize, lookahead int
	hashLen              int
	crypto               bool // SHA-256, otherwise XXH3
	firstParent          []byte
	out                  serializer
}

// NewVLLM checks a configuration. The error is ErrRandomSeed if the hashes of such an engine
// cannot be known.
func NewVLLM(c VLLMConfig) (*VLLM, error) {
	r, err := rulesOf(c.Release)
	if err != nil {
		return nil, err
	}
	h := &VLLM{rules: r, blockSize: c.BlockSize, lookahead: c.Lookahead}
	if err := h.setAlgorithm(c.Algorithm); err != nil {
		return nil, err
	}
	switch {
	case c.BlockSize < 1 || c.BlockSize > maxTokens:
		return nil, badField("block_size", "block size %d, want 1 to %d", c.BlockSize, maxTokens)
	case c.Lookahead < 0 || c.Lookahead > maxTokens:
		return nil, badField("lookahead", "%d lookahead tokens, want 0 to %d", c.Lookahead, maxTokens)
	case c.Lookahead > 0 && !r.lookahead:
		return nil, badField("lookahead", "the hashes of vLLM %s cover no lookahead tokens", c.Release)
	}
	seed := defaultSeed
	switch {
	case c.Seed != nil:
		seed = *c.Seed
	case !r.fixedSeed || !h.crypto:
		return nil, ErrRandomSeed
	}
	if !utf8.ValidString(seed) {
		return nil, badField("seed", "the seed is not UTF-8")
	}
	h.out.begin()
	h.out.text(seed)
	h.firstParent = h.appendSum(nil)
	return h, nil
}

// setAlgorithm sets what depends on the algorithm.
func (h *VLLM) setAlgorithm(a Algorithm) error {
	switch a {
	case "", SHA256, XXHash:
		h.out = &pickler{}
	case SHA256CBOR, XXHashCBOR:
		h.out = &cborWriter{}
	default:
		return badField("algorithm", "unknown algorithm %q, known are %s", a, strings.Join(Algorithms(), ", "))
	}
	h.crypto = a != XXHash && a != XXHashCBOR
	h.hashLen = 16
	if h.crypto {
		h.hashLen = sha256.Size
	}
	return nil
}

// Clone returns a VLLM of the same configuration for another goroutine.
func (h *VLLM) Clone() *VLLM {
	clone := *h
	if _, ok := h.out.(*pickler); ok {
		clone.out = &pickler{}
	} else {
		clone.out = &cborWriter{}
	}
	return &clone
}

// BlockSize returns the tokens of a block.
func (h *VLLM) BlockSize() int { return h.blockSize }

// HashLen returns the length of a hash in bytes: 32, or 16 for XXH3.
func (h *VLLM) HashLen() int { return h.hashLen }

// UsesLoRAPath reports whether the hashes depend on the path of an adapter, not its name alone.
func (h *VLLM) UsesLoRAPath() bool { return h.rules.tagged }

// FirstParent returns a copy of what stands for the parent of the first block.
func (h *VLLM) FirstParent() []byte { return bytes.Clone(h.firstParent) }

// NumHashes returns how many hashes a prompt of that many tokens has.
func (h *VLLM) NumHashes(tokens int) int {
	return max(tokens-h.lookahead, 0) / h.blockSize
}

// AppendHashes appends the hashes of a prompt's whole blocks to dst, HashLen bytes each.
// keys may be nil.
func (h *VLLM) AppendHashes(dst []byte, tokens []int64, keys *ExtraKeys) ([]byte, error) {
	return h.AppendFrom(dst, h.firstParent, 0, tokens, keys)
}

// AppendFrom goes on behind the block with the hash parent. tokens are those from position
// start of the prompt on, which is the end of that block. keys are those of the whole prompt.
// On an error dst is returned as it was.
func (h *VLLM) AppendFrom(dst, parent []byte, start int, tokens []int64, keys *ExtraKeys) ([]byte, error) {
	switch {
	case len(parent) != h.hashLen:
		return dst, fmt.Errorf("%w: %d bytes, want %d", ErrParent, len(parent), h.hashLen)
	case start < 0 || start > math.MaxInt/2 || start%h.blockSize != 0:
		return dst, fmt.Errorf("%w: token %d with blocks of %d", ErrStart, start, h.blockSize)
	}
	if keys.empty() {
		keys = nil
	} else if err := keys.check(); err != nil {
		return dst, err
	}
	n := h.NumHashes(len(tokens))
	b := blockKeys{h: h, keys: keys}
	b.skipTo(start)
	dst = slices.Grow(dst, n*h.hashLen)
	for i := range n {
		at := i * h.blockSize
		end := at + h.blockSize
		b.find(start + at)
		h.write(parent, tokens[at:end], tokens[end:end+h.lookahead], &b)
		dst = h.appendSum(dst)
		parent = dst[len(dst)-h.hashLen:]
	}
	return dst, nil
}

// write writes what a block is hashed as.
func (h *VLLM) write(parent []byte, tokens, lookahead []int64, b *blockKeys) {
	out := h.out
	out.begin()
	out.beginTuple(3)
	out.bytes(parent)
	out.beginTuple(len(tokens))
	out.ints(tokens)
	out.endTuple(len(tokens))
	if len(lookahead) == 0 {
		b.write(out)
	} else {
		out.beginTuple(1 + len(lookahead))
		b.write(out)
		out.ints(lookahead)
		out.endTuple(1 + len(lookahead))
	}
	out.endTuple(3)
}

// appendSum appends the hash of what was written.
func (h *VLLM) appendSum(dst []byte) []byte {
	if h.crypto {
		sum := sha256.Sum256(h.out.finish())
		return append(dst, sum[:]...)
	}
	sum := xxh3.Hash128(h.out.finish()).Bytes()
	return append(dst, sum[:]...)
}

// ShortHash returns the 64 bits of a hash that vLLM's events have by default: its last 8
// bytes, big-endian. The hash must have 8 bytes or more.
func ShortHash(hash []byte) uint64 { return binary.BigEndian.Uint64(hash[len(hash)-8:]) }

// badField returns an error of a configuration that names a field of it.
func badField(field, format string, args ...any) error {
	return fielderror.New([]string{field}, format, args...)
}
