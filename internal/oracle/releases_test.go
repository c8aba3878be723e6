package oracle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// releaseClasses has the revision of each folder of releases/.
var releaseClasses = map[string]string{
	"0.24.0": Rev0240, "0.25.1": Rev0251, "0.26.0": Rev0260, "0.27.1": Rev20260817,
	"0.29.0": Rev0290, "0.30.0": Rev0300, "0.32.0": Rev0320, "0.33.0": Rev0330,
}

// runRelease judges a file of every class. It skips files that are neither embedded nor in
// the directory of HITLINE_CONFORMANCE.
func runRelease[C any](t *testing.T, file string, judge func(c *C, revision string) conformance.Verdict) {
	for _, class := range slices.Sorted(maps.Keys(releaseClasses)) {
		name := "releases/" + class + "/" + file
		t.Run(class, func(t *testing.T) {
			_, err := os.Stat("../conformance/testdata/" + name + ".gz")
			if err != nil && os.Getenv("HITLINE_CONFORMANCE") == "" {
				t.Skip(name, "is not embedded")
			}
			conformance.Run(t, name, func(c *C) conformance.Verdict { return judge(c, releaseClasses[class]) })
		})
	}
}

func TestReleaseFinds(t *testing.T) {
	runRelease(t, "find_hit.json", func(raw *json.RawMessage, revision string) conformance.Verdict { return judge(*raw, revision) })
}

func TestReleaseMasks(t *testing.T) {
	runRelease(t, "masks.json", func(raw *json.RawMessage, revision string) conformance.Verdict { return judge(*raw, revision) })
}

func TestReleaseLookups(t *testing.T) { runRelease(t, "worker_lookup.json", judgeReleaseLookup) }

// releaseLookup is a case of worker_lookup.json of a release.
type releaseLookup struct {
	Pool
	ID        string                `json:"id"`
	HashLen   int                   `json:"hash_len"`
	NumHashes int                   `json:"num_hashes"`
	DupOf     map[string]int        `json:"dup_of"`
	TokenLen  int                   `json:"token_len"`
	Present   [][]conformance.Range `json:"present"`
	Absent    []struct {
		Group  int                 `json:"group"`
		Prefix []int               `json:"prefix"` // nil: all
		Ranges []conformance.Range `json:"ranges"`
	} `json:"absent"`
	Store       string                     `json:"store"`
	ExtraConfig map[string]json.RawMessage `json:"extra_config"`
	Expect      struct {
		Error       string     `json:"error"`
		Stage       string     `json:"stage"`
		HitLength   int        `json:"hit_length"`
		Tails       [][2]int   `json:"tail_key_boundaries"`
		StoreCalls  int        `json:"store_calls"`
		NumKeys     int        `json:"num_keys"`
		KeysSHA256  string     `json:"keys_sha256"`
		Counts      []int      `json:"prefix_counts"`
		Prefixes    [][]string `json:"key_prefixes"`
		PrefixesSHA string     `json:"prefixes_sha256"`
		StoreGroups []int      `json:"store_groups"`
		FineGrained *bool      `json:"fine_grained"`
		PresentKeys []string   `json:"present_keys"`
	} `json:"expect"`
}

// setExtraConfig sets the fields of the pool that are extra options of the connector.
func (c *releaseLookup) setExtraConfig() {
	option := func(name string) string { return string(c.ExtraConfig[name]) }
	if size := option("store_tp_size"); size != "" && size != "null" {
		n := integer(size)
		c.StoreTPSize = &n
	}
	c.EnableStoreTPLCM = option("enable_store_tp_lcm") == "true"
	var sizes []json.RawMessage
	if text := option("prefill_tp_sizes"); text != "" && json.Unmarshal([]byte(text), &sizes) != nil {
		sizes = nil // not a list
	}
	for _, size := range sizes {
		c.PrefillTPSizes = append(c.PrefillTPSizes, integer(string(size)))
	}
	cross := option("enable_cross_layers_blocks")
	c.EnableCrossLayersBlocks = cross == "true" || cross == `"true"`
}

// integer returns the integer of a JSON text, 0 for any other value, such as 2.0.
func integer(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// hashes returns the hashes of the request.
func (c *releaseLookup) hashes() []string {
	var list []string
	for piece := range slices.Chunk(conformance.Blob(c.ID, c.NumHashes, c.HashLen, c.DupOf), c.HashLen) {
		list = append(list, string(piece))
	}
	return list
}

func inRanges(ranges []conformance.Range, i int) bool {
	return slices.ContainsFunc(ranges, func(r conformance.Range) bool { return r[0] <= i && i < r[1] })
}

// content returns the keys that the store has.
func (c *releaseLookup) content(hashes []string) map[string]bool {
	content := map[string]bool{}
	for s, g := range c.StoreGroups() {
		for m, prefix := range c.Prefixes(g) {
			for i, hash := range hashes {
				if inRanges(c.Present[s], i) && !c.isAbsent(s, m, i) {
					content[prefix+"@"+hex.EncodeToString([]byte(hash))] = true
				}
			}
		}
	}
	return content
}

// isAbsent reports whether the case removes raw hash i from a prefix of a store group.
func (c *releaseLookup) isAbsent(group, prefix, i int) bool {
	for _, a := range c.Absent {
		if a.Group == group && (a.Prefix == nil || slices.Contains(a.Prefix, prefix)) && inRanges(a.Ranges, i) {
			return true
		}
	}
	return false
}

// answers returns what the store of the case answers.
func (c *releaseLookup) answers(keys []string, content map[string]bool) []int {
	present, absent := 1, 0
	switch c.Store {
	case "negative":
		absent = -1
	case "twos":
		present = 2
	}
	var answers []int
	for _, key := range keys {
		if content[key] {
			answers = append(answers, present)
		} else {
			answers = append(answers, absent)
		}
	}
	switch {
	case c.Store == "short_result" && len(answers) > 0:
		answers = answers[:len(answers)-1]
	case c.Store == "long_result":
		answers = append(answers, 1)
	}
	return answers
}

// digest returns the SHA-256 of lines.
func digest(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:])
}

func judgeReleaseLookup(c *releaseLookup, revision string) conformance.Verdict {
	c.Revision = revision
	c.setExtraConfig()
	if class := c.Check(); c.Expect.Stage == "construct" || class != "" {
		return verdictOf(class, c.Expect.Error)
	}
	if v := c.judgePrefixes(); v != (conformance.Verdict{}) {
		return v
	}
	hashes := c.hashes()
	content := c.content(hashes)
	if c.Expect.PresentKeys != nil {
		if got := slices.Sorted(maps.Keys(content)); !slices.Equal(got, slices.Sorted(slices.Values(c.Expect.PresentKeys))) {
			return conformance.Differs("content %q, want %q", got, c.Expect.PresentKeys)
		}
	}
	keys, class := c.Keys(c.TokenLen, hashes)
	if v := c.judgeKeys(keys); class == "" && v != (conformance.Verdict{}) {
		return v
	}
	var hit int
	var tails []Boundary
	if class == "" && c.Store != "raises" {
		hit, tails, class = c.Answer(c.TokenLen, hashes, c.answers(keys, content))
	}
	return c.judgeReply(hit, tails, class)
}

// judgePrefixes compares the key prefixes of all store groups.
func (c *releaseLookup) judgePrefixes() conformance.Verdict {
	if c.CapacityOnly {
		return conformance.Verdict{}
	}
	groups := c.StoreGroups()
	var all []string
	for s, g := range groups {
		list := c.Prefixes(g)
		if len(list) != c.Expect.Counts[s] || c.Expect.Prefixes != nil && !slices.Equal(list, c.Expect.Prefixes[s]) {
			return conformance.Differs("prefixes %q, want %d: %q", list, c.Expect.Counts[s], c.Expect.Prefixes)
		}
		all = append(all, list...)
	}
	switch {
	case digest(all) != c.Expect.PrefixesSHA:
		return conformance.Differs("another order of prefixes: %q", all)
	case c.Expect.StoreGroups != nil && !slices.Equal(groups, c.Expect.StoreGroups):
		return conformance.Differs("store groups %v, want %v", groups, c.Expect.StoreGroups)
	case c.Expect.FineGrained != nil && c.fineGrained() != *c.Expect.FineGrained:
		return conformance.Differs("fine-grained %v", c.fineGrained())
	}
	return conformance.Verdict{}
}

// judgeKeys compares the keys that the store is asked for.
func (c *releaseLookup) judgeKeys(keys []string) conformance.Verdict {
	switch {
	case len(keys) != c.Expect.NumKeys || len(keys) > 0 != (c.Expect.StoreCalls == 1):
		return conformance.Differs("%d keys, want %d in %d calls", len(keys), c.Expect.NumKeys, c.Expect.StoreCalls)
	case len(keys) > 0 && digest(keys) != c.Expect.KeysSHA256:
		return conformance.Differs("other keys: %q", keys)
	}
	return conformance.Verdict{}
}

// judgeReply compares the answer of the lookup.
func (c *releaseLookup) judgeReply(hit int, tails []Boundary, class string) conformance.Verdict {
	if class != "" || c.Expect.Error != "" {
		return verdictOf(class, c.Expect.Error)
	}
	var want []Boundary
	for _, t := range c.Expect.Tails {
		want = append(want, Boundary{Group: t[0], Tokens: t[1]})
	}
	if hit != c.Expect.HitLength || !slices.Equal(tails, want) {
		return conformance.Differs("hit %d, boundaries %v, want %d, %v", hit, tails, c.Expect.HitLength, want)
	}
	return conformance.Verdict{}
}

// verdictOf compares the classes of errors.
func verdictOf(got, want string) conformance.Verdict {
	if got != want {
		return conformance.Differs("error %q, want %q", got, want)
	}
	return conformance.Verdict{}
}
