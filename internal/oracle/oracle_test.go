package oracle

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// recordedCase is a case of find_hit.json or masks.json: a pool and the arguments of a call.
type recordedCase struct {
	Pool
	Op              string                `json:"op"`
	NumHashes       int                   `json:"num_hashes"`
	Present         [][]conformance.Range `json:"present"`
	MaxLength       int                   `json:"max_length"`
	ApplyEagle      bool                  `json:"apply_eagle"`
	AlignedTokenLen int                   `json:"aligned_token_len"`
	StartToken      int                   `json:"start_token"`
	NumPromptTokens *int                  `json:"num_prompt_tokens"`
	TokenLen        int                   `json:"token_len"`
	FineGrained     bool                  `json:"enable_partial_hash_hits"`
	Expect          struct {
		Masks     []conformance.Runs `json:"masks"`
		Error     string             `json:"error"`
		Stage     string             `json:"stage"`
		HitLength int                `json:"hit_length"`
	} `json:"expect"`
}

// run does the recorded call.
func (c *recordedCase) run() (hit int, masks []Mask, class string) {
	lists := func(lists [][]bool, class string) []Mask {
		for _, list := range lists {
			masks = append(masks, Mask{Entries: list})
		}
		return masks
	}
	switch c.Op {
	case "store_mask":
		masks, class = c.StoreMask(c.AlignedTokenLen, c.StartToken, c.NumPromptTokens)
	case "lookup_mask":
		masks, class = c.LookupMask(c.AlignedTokenLen)
	case "load_mask":
		var found [][]bool
		found, class = c.loadMask(c.NumHashes, c.TokenLen)
		masks = lists(found, class)
	default:
		var found [][]bool
		hit, found, class = c.FindHit(c.stored(), c.NumHashes, c.MaxLength, c.ApplyEagle)
		masks = lists(found, class)
	}
	return hit, masks, class
}

func (c *recordedCase) stored() func(group, raw int) bool {
	if c.Present == nil {
		return nil
	}
	return func(group, raw int) bool {
		return slices.ContainsFunc(c.Present[group], func(r conformance.Range) bool { return r[0] <= raw && raw < r[1] })
	}
}

func judge(raw json.RawMessage, revision string) conformance.Verdict {
	var c recordedCase
	if err := json.Unmarshal(raw, &c); err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	c.Revision = revision
	if c.FineGrained {
		c.CacheHitAlignmentTokens = c.HashBlockSize
	}
	if class := c.Check(); c.Expect.Stage == "construct" || class != "" {
		return verdictOf(class, c.Expect.Error)
	}
	hit, masks, class := c.run()
	if class != c.Expect.Error {
		return conformance.Differs("error %q, want %q", class, c.Expect.Error)
	}
	if class != "" {
		return conformance.Verdict{}
	}
	if hit != c.Expect.HitLength {
		return conformance.Differs("hit %d, want %d", hit, c.Expect.HitLength)
	}
	for g, want := range c.Expect.Masks {
		got := conformance.RunsOf(masks[g].Entries)
		if masks[g].All {
			got = nil
		}
		if (got == nil) != (want == nil) || !slices.Equal(got, want) {
			return conformance.Differs("mask %d is %v, want %v", g, got, want)
		}
	}
	return conformance.Verdict{}
}

func TestRecordedFindsAndMasks(t *testing.T) {
	for file, revision := range map[string]string{
		"find_hit.json": Rev20260620, "masks.json": Rev20260620, "extra/negative-2026-06-20.json": Rev20260620,
		"later/find_hit.json": Rev20260817, "later/masks.json": Rev20260817, "extra/negative-2026-08-17.json": Rev20260817,
		"docpage/find_hit.json": Rev20260604, "docpage/masks.json": Rev20260604, "extra/negative-2026-06-04.json": Rev20260604,
	} {
		t.Run(file, func(t *testing.T) {
			conformance.Run(t, file, func(raw *json.RawMessage) conformance.Verdict { return judge(*raw, revision) })
		})
	}
}

func TestRecordedLookups(t *testing.T) {
	for file, revision := range map[string]string{"worker_lookup.json": Rev20260620, "later/worker_lookup.json": Rev20260817} {
		t.Run(file, func(t *testing.T) {
			conformance.Run(t, file, func(c *conformance.WorkerCase) conformance.Verdict { return judgeLookup(c, revision) })
		})
	}
}

func judgeLookup(c *conformance.WorkerCase, revision string) conformance.Verdict {
	if c.Store != "normal" {
		return conformance.Verdict{} // the oracle's store has no faults
	}
	var pool Pool
	if err := json.Unmarshal(c.Raw, &pool); err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	pool.Revision = revision
	content, err := c.Content()
	if err != nil {
		return conformance.Differs("content: %v", err)
	}
	var hashes []string
	for blob := c.Blob(); len(blob) > 0; blob = blob[c.HashLen:] {
		hashes = append(hashes, string(blob[:c.HashLen]))
	}
	hit, class := pool.Lookup(int(c.TokenLen), hashes, func(group int, rank Rank, hash string) bool {
		return content[keyOf(c, &pool, group, rank, hash)]
	})
	if class != c.Expect.Error || class == "" && int64(hit) != c.Expect.HitLength {
		return conformance.Differs("hit %d, error %q, want %d, %q", hit, class, c.Expect.HitLength, c.Expect.Error)
	}
	return conformance.Verdict{}
}

func keyOf(c *conformance.WorkerCase, pool *Pool, group int, rank Rank, hash string) string {
	model := c.ModelName[strings.LastIndexByte(c.ModelName, '/')+1:]
	if c.CachePrefix != "" {
		model = c.CachePrefix + "@" + model
	}
	dcp := c.DCPRank
	if pool.Revision == Rev20260817 {
		dcp = rank.TP % max(1, pool.DCPSize)
	}
	return fmt.Sprintf("%s@tp_rank:%d@pcp%d@dcp%d@pp_rank:%d@group:%d@%s", model, rank.TP, rank.PCP, dcp, rank.PP, group, hex.EncodeToString([]byte(hash)))
}
