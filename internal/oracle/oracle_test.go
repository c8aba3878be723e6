package oracle

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
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
		"docpage/find_hit.json": Commit20260604, "docpage/masks.json": Commit20260604, "extra/negative-2026-06-04.json": Commit20260604,
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

func TestRecordedLookups(t *testing.T) {
	files := map[string]string{"worker_lookup.json": "", "later/worker_lookup.json": "0.27.0"}
	for _, release := range conformance.Releases {
		files["releases/"+release+"/worker_lookup.json"] = release
	}
	for file, release := range files {
		t.Run(file, func(t *testing.T) {
			conformance.Run(t, file, func(c *conformance.WorkerCase) conformance.Verdict { return judgeLookup(c, release) })
		})
	}
}

// The recorded lookups with a start. The blocks before it are not looked for in the store.
func TestSeededLookup(t *testing.T) {
	for _, release := range conformance.Releases {
		conformance.Run(t, "releases/"+release+"/seeded_lookup.json", func(c *conformance.WorkerCase) conformance.Verdict {
			return judgeSeeded(c, release)
		})
	}
}

func judgeSeeded(c *conformance.WorkerCase, release string) conformance.Verdict {
	pool := Pool{Release: release}
	text, err := c.PoolJSON()
	if err = errors.Join(err, json.Unmarshal(text, &pool)); err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	prefixes := make([][]string, 0, len(pool.Groups)) // of store groups
	for _, g := range pool.StoreGroups() {
		prefixes = append(prefixes, pool.Prefixes(g))
	}
	content, err := c.ContentOf(prefixes)
	if err != nil {
		return conformance.Differs("content: %v", err)
	}
	has := func(group int, rank Rank, hash string) bool {
		prefix := pool.Prefixes(group)[slices.Index(pool.Ranks(group), rank)]
		return content[prefix+"@"+hex.EncodeToString([]byte(hash))]
	}
	var hashes []string
	for hash := range slices.Chunk(c.Blob(), c.HashLen) {
		hashes = append(hashes, string(hash))
	}
	want := &c.Expect
	if hit, class := pool.Lookup(int(c.TokenLen), hashes, has); class == "" && int64(hit) != want.WholeHitLength {
		return conformance.Differs("without a start: hit %d, want %d", hit, want.WholeHitLength)
	}
	hit, tails, class := pool.LookupTails(int(c.StartTokens), int(c.TokenLen), hashes, has)
	boundaries := make([][2]int64, 0, len(tails))
	for _, tail := range tails {
		boundaries = append(boundaries, [2]int64{int64(tail.Group), int64(tail.Tokens)})
	}
	if class != want.Error || class == "" && (int64(hit) != want.HitLength || !slices.Equal(boundaries, want.TailKeyBoundaries)) {
		return conformance.Differs("hit %d, boundaries %v, error %q, want %d, %v, %q", hit, boundaries, class, want.HitLength, want.TailKeyBoundaries, want.Error)
	}
	return conformance.Verdict{}
}

func judgeLookup(c *conformance.WorkerCase, release string) conformance.Verdict {
	pool := Pool{}
	text, err := c.PoolJSON()
	if err == nil {
		err = json.Unmarshal(text, &pool)
	}
	if err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	pool.Release = release
	if class := pool.Check(); c.Expect.Stage == "construct" || class != "" {
		return judgeRefusal(class, c.Expect.Stage, c.Expect.Error)
	}
	if c.Expect.PrefixCounts != nil { // a release
		if pool.fineGrained() != c.Expect.FineGrained {
			return conformance.Differs("fine-grained %v, want %v", pool.fineGrained(), c.Expect.FineGrained)
		}
		var prefixes [][]string
		for _, g := range pool.StoreGroups() {
			prefixes = append(prefixes, pool.Prefixes(g))
		}
		if err := c.SetPrefixes(prefixes); err != nil {
			return conformance.Differs("%v", err)
		}
	}
	store, err := c.NewStore()
	if err != nil {
		return conformance.Differs("content: %v", err)
	}
	return judgeAnswer(c, &pool, store)
}

// judgeAnswer looks up in the store of the case.
func judgeAnswer(c *conformance.WorkerCase, pool *Pool, store *conformance.Store) conformance.Verdict {
	var hashes []string
	for hash := range slices.Chunk(c.Blob(), c.HashLen) {
		hashes = append(hashes, string(hash))
	}
	hit, tails, class := lookupIn(pool, int(c.TokenLen), hashes, store)
	var err error
	if class != "" {
		err = errors.New(class)
	}
	var boundaries [][2]int64
	for _, tail := range tails {
		boundaries = append(boundaries, [2]int64{int64(tail.Group), int64(tail.Tokens)})
	}
	return c.Judge(store, int64(hit), boundaries, err, class)
}

// lookupIn asks the store as the worker does. A store that fails is an empty store.
func lookupIn(pool *Pool, tokens int, hashes []string, store *conformance.Store) (hit int, tails []Boundary, class string) {
	keys, class := pool.Keys(tokens, hashes)
	if class != "" || len(keys) == 0 {
		return 0, nil, class
	}
	answers, err := store.Exists(keys)
	if err != nil {
		return 0, nil, ""
	}
	return pool.Answer(tokens, hashes, answers)
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
