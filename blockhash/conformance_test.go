package blockhash_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
)

// recordedCase is a case of scripts/reference/blockhash.py.
type recordedCase struct {
	Engine  string          `json:"engine"`
	Release string          `json:"release"`
	Tokens  tokenSpec       `json:"tokens"`
	Expect  json.RawMessage `json:"expect"`
	vllmCase
	sglangCase
}

// vllmCase is the part of a case of vLLM.
type vllmCase struct {
	BlockSize int                 `json:"block_size"`
	Algorithm blockhash.Algorithm `json:"algorithm"`
	Seed      *string             `json:"seed"`
	Lookahead int                 `json:"lookahead"`
	Keys      struct {
		LoRA   []string   `json:"lora"` // name and path
		Salt   string     `json:"salt"`
		Items  [][3]any   `json:"items"` // identifier, offset, length
		Embeds *tokenSpec `json:"embeds"`
	} `json:"keys"`
}

// sglangCase is the part of a case of SGLang.
type sglangCase struct {
	PageSize int     `json:"page_size"`
	Bigrams  bool    `json:"bigrams"`
	Dynamo   bool    `json:"dynamo"`
	LoRA     bool    `json:"lora"`
	ExtraKey *string `json:"extra_key"`
	Salt     string  `json:"salt"`
}

// sglangExpected are digests in the storage and of events, and the hashes that events have.
type sglangExpected struct {
	Storage, Events, Short expected
}

// expected is a list of hashes in hex: all, or the first and the last one with the number and
// the digest of all.
type expected struct {
	Hashes []string `json:"hashes"`
	Num    int      `json:"num"`
	Digest string   `json:"digest"`
}

// tokenSpec makes token ids as expand of blockhash.py does.
type tokenSpec struct {
	N      int    `json:"n"`
	Seed   uint64 `json:"seed"`
	Top    uint64 `json:"top"` // 0 for edge values from Lowest to Widest
	Widest int64  `json:"widest"`
	Lowest int64  `json:"lowest"`
}

func (s tokenSpec) expand() []int64 {
	var edges []int64
	values := []int64{0, 1, 255, 256, 65_535, 65_536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<39 - 1, 1 << 39, 1 << 47, 1 << 55, math.MaxInt64}
	for _, sign := range []int64{1, -1} {
		for _, v := range values {
			if v *= sign; s.Lowest <= v && v <= s.Widest {
				edges = append(edges, v)
			}
		}
	}
	if s.Lowest == math.MinInt64 {
		edges = append(edges, math.MinInt64)
	}
	tokens := make([]int64, s.N)
	state := s.Seed
	for i := range tokens {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		if s.Top > 0 {
			tokens[i] = int64(z % s.Top)
		} else {
			tokens[i] = edges[z%uint64(len(edges))]
		}
	}
	return tokens
}

// check returns an error if hashes of size bytes each are others than the expected ones.
func (e expected) check(what string, blob []byte, size int) error {
	all := make([]string, len(blob)/size)
	for i := range all {
		all[i] = hex.EncodeToString(blob[i*size : (i+1)*size])
	}
	if e.Digest == "" {
		if strings.Join(all, "\n") != strings.Join(e.Hashes, "\n") {
			return fmt.Errorf("%s: got %q, want %q", what, all, e.Hashes)
		}
		return nil
	}
	digest := sha256.Sum256([]byte(strings.Join(all, "\n")))
	switch {
	case len(all) != e.Num:
		return fmt.Errorf("%s: got %d hashes, want %d", what, len(all), e.Num)
	case hex.EncodeToString(digest[:]) != e.Digest:
		return fmt.Errorf("%s: got %s … %s, want %q and their digest", what, all[0], all[len(all)-1], e.Hashes)
	}
	return nil
}

// extraKeys returns the extra keys of a case.
func (c *vllmCase) extraKeys() *blockhash.ExtraKeys {
	keys := &blockhash.ExtraKeys{Salt: c.Keys.Salt}
	if c.Keys.LoRA != nil {
		keys.LoRA = &blockhash.LoRA{Name: c.Keys.LoRA[0], Path: c.Keys.LoRA[1]}
	}
	for _, item := range c.Keys.Items {
		keys.Items = append(keys.Items, blockhash.Item{
			ID: item[0].(string), Offset: int(item[1].(float64)), Length: int(item[2].(float64)),
		})
	}
	if c.Keys.Embeds == nil {
		return keys
	}
	rows := c.Keys.Embeds.expand()
	keys.Embeds = [][sha256.Size]byte{}
	for at := 0; at < len(rows); at += c.BlockSize {
		var text []byte
		for _, row := range rows[at:min(at+c.BlockSize+c.Lookahead, len(rows))] {
			text = binary.LittleEndian.AppendUint32(text, uint32(row))
		}
		keys.Embeds = append(keys.Embeds, sha256.Sum256(text))
	}
	return keys
}

// judgeVLLM returns an error if the case has other hashes, in one piece or in two.
func (c *recordedCase) judgeVLLM() error {
	release := c.Release
	if !slices.Contains(coordinator.Releases(), release) {
		release = "" // make reference compares a new release with the newest one
	}
	h, err := blockhash.NewVLLM(blockhash.VLLMConfig{
		Release: release, Algorithm: c.Algorithm, Seed: c.Seed, BlockSize: c.BlockSize, Lookahead: c.Lookahead,
	})
	if err != nil {
		return err
	}
	var want expected
	if err := json.Unmarshal(c.Expect, &want); err != nil {
		return err
	}
	tokens, keys := c.Tokens.expand(), c.extraKeys()
	got, err := h.AppendHashes(nil, tokens, keys)
	if err != nil {
		return err
	}
	if err := want.check("hashes", got, h.HashLen()); err != nil {
		return err
	}
	n := len(got) / h.HashLen()
	if n == 0 {
		return nil
	}
	cut := int(c.Tokens.Seed%uint64(n)) + 1 // blocks in the first piece
	pieces := slices.Clone(got[:cut*h.HashLen()])
	parent := got[(cut-1)*h.HashLen() : cut*h.HashLen()]
	if pieces, err = h.AppendFrom(pieces, parent, cut*c.BlockSize, tokens[cut*c.BlockSize:], keys); err != nil {
		return err
	}
	return want.check("hashes in two pieces", pieces, h.HashLen())
}

// judgeSGLang returns an error if the case has other digests or short hashes.
func (c *recordedCase) judgeSGLang() error {
	config := blockhash.SGLangConfig{
		PageSize: c.PageSize, Bigrams: c.Bigrams,
		Namespace: blockhash.Namespace{ExtraKey: c.ExtraKey, Salt: c.Salt, LoRA: c.LoRA, Dynamo: c.Dynamo},
	}
	events, err := blockhash.NewSGLang(config)
	if err != nil {
		return err
	}
	config.Storage = true
	storage, err := blockhash.NewSGLang(config)
	if err != nil {
		return err
	}
	var want sglangExpected
	if err := json.Unmarshal(c.Expect, &want); err != nil {
		return err
	}
	tokens := c.Tokens.expand()
	chain, err := events.AppendHashes(nil, tokens)
	if err != nil {
		return err
	}
	stored, err := storage.AppendHashes(nil, tokens)
	if err != nil {
		return err
	}
	var short []byte
	for digest := range slices.Chunk(chain, sha256.Size) {
		short = binary.BigEndian.AppendUint64(short, events.ShortHash(digest))
	}
	return cmp.Or(
		want.Events.check("digests of events", chain, sha256.Size),
		want.Storage.check("digests of the storage", stored, sha256.Size),
		want.Short.check("short hashes", short, 8),
	)
}

// TestConformance compares with the hashes that the engines' unmodified modules give.
func TestConformance(t *testing.T) {
	conformance.RunKind(t, "blockhash", func(c *recordedCase) conformance.Verdict {
		judge := c.judgeVLLM
		if c.Engine == "sglang" {
			judge = c.judgeSGLang
		}
		if err := judge(); err != nil {
			return conformance.Differs("%.500v", err)
		}
		return conformance.Verdict{}
	})
}
