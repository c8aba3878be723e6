package oracle

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hitline/hitline/coordinator"
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
		found, class = c.LoadMask(c.TokenLen, c.NumHashes)
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

func judge(raw json.RawMessage, release string) conformance.Verdict {
	var c recordedCase
	if err := json.Unmarshal(raw, &c); err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	c.Release = release
	if c.FineGrained {
		c.CacheHitAlignmentTokens = c.HashBlockSize
	}
	if class := c.Check(); c.Expect.Stage == "construct" || class != "" {
		return judgeRefusal(class, c.Expect.Stage, c.Expect.Error)
	}
	hit, masks, class := c.run()
	if class != "" || c.Expect.Error != "" {
		return judgeClass(class, c.Expect.Error)
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
	files := map[string]string{
		"find_hit.json": "", "masks.json": "", "extra/negative-2026-06-20.json": "",
		"later/find_hit.json": "0.27.0", "later/masks.json": "0.27.0", "extra/negative-2026-08-17.json": "0.27.0",
	}
	for _, release := range conformance.Releases {
		files["releases/"+release+"/find_hit.json"] = release
		files["releases/"+release+"/masks.json"] = release
	}
	for file, release := range files {
		t.Run(file, func(t *testing.T) {
			conformance.Run(t, file, func(raw *json.RawMessage) conformance.Verdict { return judge(*raw, release) })
		})
	}
}

// The answers of stores that answer as they should, also with a start: the blocks before it are not looked for.
func TestRecordedLookups(t *testing.T) {
	files := map[string]string{"worker_lookup.json": "", "later/worker_lookup.json": "0.27.0"}
	for _, release := range conformance.Releases {
		files["releases/"+release+"/worker_lookup.json"] = release
		files["releases/"+release+"/seeded_lookup.json"] = release
	}
	for file, release := range files {
		t.Run(file, func(t *testing.T) {
			conformance.Run(t, file, func(c *conformance.WorkerCase) conformance.Verdict { return judgeLookup(c, release) })
		})
	}
}

func judgeLookup(c *conformance.WorkerCase, release string) conformance.Verdict {
	if c.Store != "" && c.Store != "normal" {
		return conformance.Skipped("its store answers as none does")
	}
	pool := Pool{}
	var rules coordinator.Pool
	text, err := c.PoolJSON()
	if err = errors.Join(err, json.Unmarshal(text, &pool), json.Unmarshal(text, &rules)); err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	pool.Release, rules.VLLM = release, conformance.Newest((&coordinator.Pool{VLLM: release}).FittingReleases())
	if release == "0.27.0" { // of the commit of 2026-08-17
		rules.VLLM = "0.28.0"
	}
	if class := pool.Check(); c.Expect.Stage == "construct" || class != "" {
		return judgeRefusal(class, c.Expect.Stage, c.Expect.Error)
	}
	if c.Expect.PrefixCounts != nil && pool.fineGrained() != c.Expect.FineGrained {
		return conformance.Differs("fine-grained %v, want %v", pool.fineGrained(), c.Expect.FineGrained)
	}
	coord, err := coordinator.New(rules)
	if err != nil {
		return conformance.Differs("coordinator: %v", err)
	}
	return judgeAnswer(c, &pool, coord, slices.Contains(conformance.Releases, release))
}

// judgeAnswer looks up in the store of the case, which may be one of a release. The keys are those of the coordinator.
func judgeAnswer(c *conformance.WorkerCase, pool *Pool, coord *coordinator.Coordinator, ofRelease bool) conformance.Verdict {
	var ranks [][]Rank
	var prefixes [][]string
	for g := range coord.NumGroups() {
		ranks, prefixes = append(ranks, nil), append(prefixes, nil)
		for _, r := range coord.Ranks(g) {
			ranks[g] = append(ranks[g], Rank{TP: r.TP, PP: r.PP, PCP: r.PCP})
			prefixes[g] = append(prefixes[g], strings.TrimSuffix(coord.KeyPrefix(g, r), "@"))
		}
	}
	pool.SetRanks(ranks)
	content, err := c.Content()
	if ofRelease {
		content, err = c.ContentOf(prefixes)
	}
	if err != nil {
		return conformance.Differs("content: %v", err)
	}
	has := func(group int, rank Rank, hash string) bool {
		number := slices.Index(pool.StoreGroups(), group)
		return content[prefixes[number][slices.Index(ranks[number], rank)]+"@"+hex.EncodeToString([]byte(hash))]
	}
	var hashes []string
	for hash := range slices.Chunk(c.Blob(), c.HashLen) {
		hashes = append(hashes, string(hash))
	}
	want := &c.Expect
	hit, tails, class := pool.LookupTails(int(c.StartTokens), int(c.TokenLen), hashes, has)
	var boundaries [][2]int64
	for _, tail := range tails {
		boundaries = append(boundaries, [2]int64{int64(tail.Group), int64(tail.Tokens)})
	}
	if class != want.Error || class == "" && (int64(hit) != want.HitLength || !slices.Equal(boundaries, want.TailKeyBoundaries)) {
		return conformance.Differs("hit %d, boundaries %v, error %q, want %d, %v, %q", hit, boundaries, class, want.HitLength, want.TailKeyBoundaries, want.Error)
	}
	return conformance.Verdict{}
}

// judgeRefusal compares the class with which a pool is refused.
func judgeRefusal(got, stage, want string) conformance.Verdict {
	if got != want || stage != "construct" {
		return conformance.Differs("the pool is refused with %q, want %q at %q", got, want, stage)
	}
	return conformance.Verdict{}
}

// judgeClass compares the classes of errors.
func judgeClass(got, want string) conformance.Verdict {
	if got != want {
		return conformance.Differs("error %q, want %q", got, want)
	}
	return conformance.Verdict{}
}
