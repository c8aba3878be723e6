package router

import (
	"encoding/hex"
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

// mistakes returns profiles with one wrong setting each, and what to change of them.
func mistakes(h Hashing) map[string]Hashing {
	list := map[string]Hashing{}
	with := func(want string, change func(*Hashing)) {
		wrong := h
		change(&wrong)
		list[want] = wrong
	}
	if h.Type == TypeSGLang {
		with("set bigrams: ", func(h *Hashing) { h.Bigrams = !h.Bigrams })
		with("set type: sglang", func(h *Hashing) { *h = Hashing{Type: TypeVLLM} })
		return list
	}
	seed := "remove seed, as the engine has no PYTHONHASHSEED"
	if h.Seed != nil {
		seed = `set seed: "` + *h.Seed + `", the engine's PYTHONHASHSEED`
	}
	with(seed, func(h *Hashing) { h.Seed = new("another") })
	algorithm := blockhash.SHA256
	if h.Algorithm == algorithm {
		algorithm = blockhash.SHA256CBOR
	}
	with("set algorithm: "+string(h.Algorithm), func(h *Hashing) { h.Algorithm = algorithm })
	with("set type: vllm", func(h *Hashing) { *h = Hashing{Type: TypeSGLang} })
	if h.Lookahead > 0 {
		with("set lookahead: ", func(h *Hashing) { h.Lookahead = 0 })
	}
	return list
}

// TestConformance reads events that the modules of all known releases have hashed and encoded: the right profile fits, and
// with a wrong one the right setting is named.
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
		for want, wrong := range mistakes(right) {
			if wrong.fits(c.BlockSize, blocks[0]) {
				return conformance.Differs("%+v fits, too", wrong)
			}
			if got := wrong.explain(c.BlockSize, blocks...); !strings.Contains(got, want) {
				return conformance.Differs("%+v is explained by %q, want %q", wrong, got, want)
			}
		}
		return conformance.Verdict{}
	})
}
