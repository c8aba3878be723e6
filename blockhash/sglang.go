package blockhash

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// Texts before what the namespaces are hashed from.
const (
	saltSeedTag         = "sglang-cache-salt-v1\x00"
	storageNamespaceTag = "sglang-cache-namespace-v1"
	eventNamespaceTag   = "sglang-kv-event-namespace-v1"
)

// DigestLen is the length of SGLang's digests in bytes.
const DigestLen = sha256.Size

// wideTag stands before the tokens of a page that has one of over 32 bits.
const wideTag = 0xff

// Namespace separates requests with the same tokens.
type Namespace struct {
	// ExtraKey is the request's extra key with its adapter's id, nil if it has none.
	ExtraKey *string
	Salt     string // cache_salt, "" if there is none
	// LoRA says that ExtraKey belongs to an adapter that has a name.
	LoRA bool
	// Dynamo says that the engine's events have the format "dynamo".
	Dynamo bool
}

// SGLangConfig is what the hashes of a request depend on besides its tokens.
type SGLangConfig struct {
	PageSize  int  // the engine's page_size in tokens
	Bigrams   bool // the engine hashes pairs of tokens, for EAGLE
	Namespace Namespace
	// Storage chooses the digests that pages have in the storage of HiCache. Without it they
	// are those that events are made of.
	Storage bool
}

// SGLang computes the page hashes of requests. It is not safe for concurrent use, see Clone.
type SGLang struct {
	pageSize  int
	bigrams   bool
	seed      []byte // before the first page, empty without a namespace
	eventSeed []byte // hashed before short hashes for events, empty if they are not hashed again
	buf       []byte
}

// NewSGLang checks a configuration.
func NewSGLang(c SGLangConfig) (*SGLang, error) {
	ns := c.Namespace
	switch {
	case c.PageSize < 1 || c.PageSize > maxTokens:
		return nil, fmt.Errorf("page size %d, want 1 to %d", c.PageSize, maxTokens)
	case !utf8.ValidString(ns.Salt) || ns.ExtraKey != nil && !utf8.ValidString(*ns.ExtraKey):
		return nil, errors.New("salt or extra key is not UTF-8")
	}
	h := &SGLang{pageSize: c.PageSize, bigrams: c.Bigrams}
	var salt *string
	if ns.Salt != "" {
		salt = &ns.Salt
	}
	switch {
	case c.Storage:
		h.seed = hashNamespace(storageNamespaceTag, ns.ExtraKey, salt)
	case salt != nil:
		sum := sha256.Sum256([]byte(saltSeedTag + *salt))
		h.seed = sum[:]
	}
	switch {
	case ns.Dynamo:
		h.eventSeed = hashNamespace(eventNamespaceTag, ns.ExtraKey, salt)
	case ns.LoRA:
		h.eventSeed = hashNamespace(eventNamespaceTag, ns.ExtraKey, nil)
	}
	return h, nil
}

// hashNamespace returns the hash of a namespace, nil if it has no part. Each part is written
// with its presence and its length.
func hashNamespace(tag string, parts ...*string) []byte {
	text, found := []byte(tag), false
	for _, part := range parts {
		if part == nil {
			text = append(text, 0)
			continue
		}
		found = true
		text = append(text, 1)
		text = binary.LittleEndian.AppendUint64(text, uint64(len(*part)))
		text = append(text, *part...)
	}
	if !found {
		return nil
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// Clone returns an SGLang of the same configuration for another goroutine.
func (h *SGLang) Clone() *SGLang {
	clone := *h
	clone.buf = nil
	return &clone
}

// NumHashes returns how many hashes a prompt of that many tokens has. Bigrams need a token
// behind the last page.
func (h *SGLang) NumHashes(tokens int) int {
	if h.bigrams {
		tokens--
	}
	return max(tokens, 0) / h.pageSize
}

// AppendHashes appends the digests of a prompt's whole pages to dst, DigestLen bytes each.
func (h *SGLang) AppendHashes(dst []byte, tokens []int64) ([]byte, error) {
	return h.AppendFrom(dst, h.seed, tokens)
}

// AppendFrom goes on behind the page with the digest prior. tokens are those behind that page; with
// bigrams the first one was also a part of its last pair. An empty prior stands for no page. On an
// error dst is returned as it was.
func (h *SGLang) AppendFrom(dst, prior []byte, tokens []int64) ([]byte, error) {
	if len(prior) != 0 && len(prior) != DigestLen {
		return dst, fmt.Errorf("%w: %d bytes, want %d", ErrParent, len(prior), DigestLen)
	}
	for i, t := range tokens {
		if t < 0 {
			return dst, fmt.Errorf("%w: %d at position %d", ErrToken, t, i)
		}
	}
	n := h.NumHashes(len(tokens))
	dst = slices.Grow(dst, n*DigestLen)
	for i := range n {
		at := i * h.pageSize
		end := at + h.pageSize
		if h.bigrams {
			end++
		}
		h.write(prior, tokens[at:end])
		sum := sha256.Sum256(h.buf)
		dst = append(dst, sum[:]...)
		prior = dst[len(dst)-DigestLen:]
	}
	return dst, nil
}

// write writes what a page is hashed as to h.buf.
func (h *SGLang) write(prior []byte, tokens []int64) {
	buf := append(h.buf[:0], prior...)
	wide := slices.ContainsFunc(tokens, func(t int64) bool { return t > math.MaxUint32 })
	if wide {
		buf = append(buf, wideTag)
	}
	for i, t := range tokens {
		switch {
		case !h.bigrams:
			buf = appendToken(buf, t, wide)
		case i > 0:
			buf = appendToken(appendToken(buf, tokens[i-1], wide), t, wide)
		}
	}
	h.buf = buf
}

func appendToken(buf []byte, t int64, wide bool) []byte {
	if wide {
		return binary.LittleEndian.AppendUint64(buf, uint64(t))
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(t))
}

// FirstPrior returns a copy of the digest before the first page, nil without a namespace.
func (h *SGLang) FirstPrior() []byte { return bytes.Clone(h.seed) }

// ShortHash returns the 64 bits by which events name a page; digest has 32 bytes. Events write them
// as a signed number.
func (h *SGLang) ShortHash(digest []byte) uint64 {
	short := binary.BigEndian.Uint64(digest)
	if len(h.eventSeed) == 0 {
		return short
	}
	h.buf = binary.BigEndian.AppendUint64(append(h.buf[:0], h.eventSeed...), short)
	sum := sha256.Sum256(h.buf)
	return binary.BigEndian.Uint64(sum[:])
}
