package router

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/router/events"
)

// recordedCase is a case of scripts/reference/agreement.py.
type recordedCase struct {
	ID        string              `json:"id"`
	Release   string              `json:"release"`
	BlockSize int                 `json:"block_size"`
	Algorithm blockhash.Algorithm `json:"algorithm"` // "": SGLang
	Seed      *string             `json:"seed"`
	Lookahead int                 `json:"lookahead"`
	Bigrams   bool                `json:"bigrams"`
	Dynamo    bool                `json:"dynamo"`
	Payload   string              `json:"payload"`
}

// profile returns how the engine of the case hashes.
func (c *recordedCase) profile() Hashing {
	if c.Algorithm == "" {
		return Hashing{Type: TypeSGLang, Bigrams: c.Bigrams, Dynamo: c.Dynamo}
	}
	return Hashing{Type: TypeVLLM, Release: c.Release, Algorithm: c.Algorithm, Seed: c.Seed, Lookahead: c.Lookahead}
}

// mistakes returns profiles with one wrong setting each.
func mistakes(h Hashing) []Hashing {
	if h.Type == TypeSGLang {
		return []Hashing{{Type: TypeVLLM}, {Type: TypeSGLang, Bigrams: !h.Bigrams, Dynamo: h.Dynamo}}
	}
	seed, algorithm, lookahead := h, h, h
	seed.Seed = new("another")
	if algorithm.Algorithm = blockhash.SHA256; h.Algorithm == blockhash.SHA256 {
		algorithm.Algorithm = blockhash.SHA256CBOR
	}
	list := []Hashing{{Type: TypeSGLang}, seed, algorithm}
	if h.Lookahead > 0 {
		lookahead.Lookahead = 0
		list = append(list, lookahead)
	}
	return list
}

// TestConformance reads events that the modules of all known releases have hashed and encoded: the right profile fits, and
// with a wrong one a right one is named.
func TestConformance(t *testing.T) {
	conformance.RunKind(t, "agreement", func(c *recordedCase) conformance.Verdict {
		payload, err := hex.DecodeString(c.Payload)
		if err != nil {
			return conformance.Differs("%v", err)
		}
		right, blocks := c.profile(), []*events.FirstBlock(nil)
		_, err = new(events.Decoder).Decode(payload, func(e *events.Event) error {
			if b := new(events.FirstBlock); e.ReadFirstBlock(b) {
				blocks = append(blocks, cloneBlock(b))
			}
			return nil
		})
		if err != nil || len(blocks) != 2 {
			return conformance.Differs("%d first blocks, %v", len(blocks), err)
		}
		for _, b := range blocks {
			if !right.fits(c.BlockSize, b) {
				return conformance.Differs("%+v does not fit %+v", right, b)
			}
		}
		for _, wrong := range mistakes(right) {
			if wrong.fits(c.BlockSize, blocks[0]) {
				return conformance.Differs("%+v fits, too", wrong)
			}
			var named Hashing
			got := wrong.explain(c.BlockSize, blocks...)
			_, text, _ := strings.Cut(got, "hash: ")
			if json.Unmarshal([]byte(text), &named) != nil || !named.fits(c.BlockSize, blocks[1]) {
				return conformance.Differs("%+v is explained by %q", wrong, got)
			}
		}
		return conformance.Verdict{}
	})
}
