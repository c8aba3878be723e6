package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// WorkerCase is a case of worker_lookup.json: one lookup of a worker over a scripted store.
type WorkerCase struct {
	// Raw is the JSON of the case. It decodes into a pool configuration with the names of the
	// vectors.
	Raw json.RawMessage `json:"-"`

	ID           string         `json:"id"`
	ModelName    string         `json:"model_name"`
	CachePrefix  string         `json:"cache_prefix"`
	TPSize       int            `json:"tp_size"`
	PPSize       int            `json:"pp_size"`
	PCPRank      int            `json:"pcp_rank"`
	DCPRank      int            `json:"dcp_rank"`
	PCPSize      int            `json:"pcp_size"` // 2026-08-17 only, else 0
	DCPSize      int            `json:"dcp_size"` // 2026-08-17 only, else 0
	HashLen      int            `json:"hash_len"`
	NumHashes    int            `json:"num_hashes"`
	DupOf        map[string]int `json:"dup_of"` // not empty: hashes are equal, see LoadWorkers
	TokenLen     int64          `json:"token_len"`
	StartTokens  int64          `json:"start_tokens"` // of seeded_lookup.json: the lookup begins there
	Present      [][]Range      `json:"present"`
	Absent       []absence      `json:"absent"`
	Store        string         `json:"store"`
	CapacityOnly bool           `json:"capacity_only"` // of releases
	PresentKeys  []string       `json:"present_keys"`
	prefixes     [][]string     // of a case of a release, see SetPrefixes

	ExtraConfig extraConfig `json:"extra_config"`
	Expect      struct {
		HitLength int64 `json:"hit_length"`
		// Of releases only:
		TailKeyBoundaries [][2]int64 `json:"tail_key_boundaries"`
		Reply             string     `json:"reply"` // hex
		PrefixCounts      []int      `json:"prefix_counts"`
		PrefixesSHA256    string     `json:"prefixes_sha256"`
		FineGrained       bool       `json:"fine_grained"`
		Stage             string     `json:"stage"`
		Error             string     `json:"error"`
		WholeHitLength    int64      `json:"whole_hit_length"` // of seeded_lookup.json: the hit without a start
		StoreCalls        int        `json:"store_calls"`
		NumKeys           int        `json:"num_keys"`
		KeysSHA256        *string    `json:"keys_sha256"`
		FirstKeys         []string   `json:"first_keys"`
		LastKey           *string    `json:"last_key"`
		PresentKeys       []string   `json:"present_keys"` // of releases
	} `json:"expect"`
}

// absence lists raw hashes of a group that are absent on some ranks. A nil list of ranks means
// all ranks.
type absence struct {
	Group  int     `json:"group"`
	TP     []int   `json:"tp"`
	PP     []int   `json:"pp"`
	Prefix []int   `json:"prefix"` // of releases, in place of TP and PP
	Ranges []Range `json:"ranges"`
}

// UnmarshalJSON decodes the case and copies its JSON to Raw.
func (c *WorkerCase) UnmarshalJSON(text []byte) error {
	type plain WorkerCase // without this method
	if err := json.Unmarshal(text, (*plain)(c)); err != nil {
		return err
	}
	c.Raw = slices.Clone(text)
	return nil
}

// LoadWorkers returns the worker cases of a file, without those that Run skips.
func LoadWorkers(tb testing.TB, name string) []*WorkerCase {
	tb.Helper()
	var file struct {
		Cases []*WorkerCase `json:"cases"`
	}
	Load(tb, name, &file)
	return slices.DeleteFunc(file.Cases, func(c *WorkerCase) bool { return len(c.DupOf) > 0 })
}

// Blob returns the hashes of the request end to end.
func (c *WorkerCase) Blob() []byte { return Blob(c.ID, c.NumHashes, c.HashLen) }

// BlobFromStart returns the hashes of the request from its start on. H is the pool's hash block size.
func (c *WorkerCase) BlobFromStart(hashBlockSize int) []byte {
	return c.Blob()[int(c.StartTokens)/hashBlockSize*c.HashLen:]
}

// Content returns the keys that the scripted store has.
func (c *WorkerCase) Content() (map[string]bool, error) {
	if c.prefixes != nil {
		content := c.releaseContent()
		return content, c.checkContent(content)
	}
	blob := c.Blob()
	content := map[string]bool{}
	for g := range c.Present {
		for _, namespace := range c.namespaces(g) {
			for i := range c.NumHashes {
				if contains(c.Present[g], i) && !c.isAbsent(g, namespace.tp, namespace.pp, i) {
					content[namespace.prefix+hex.EncodeToString(blob[i*c.HashLen:(i+1)*c.HashLen])] = true
				}
			}
		}
	}
	return content, c.checkContent(content)
}

// checkContent compares built store keys with those that the case lists, if it does.
func (c *WorkerCase) checkContent(content map[string]bool) error {
	if c.Expect.PresentKeys != nil {
		c.PresentKeys = c.Expect.PresentKeys
	}
	if c.PresentKeys == nil {
		return nil
	}
	if len(content) != len(c.PresentKeys) {
		return fmt.Errorf("conformance: case %s: built %d store keys, the case lists %d", c.ID, len(content), len(c.PresentKeys))
	}
	for _, key := range c.PresentKeys {
		if !content[key] {
			return fmt.Errorf("conformance: case %s: the case lists store key %q, which was not built", c.ID, key)
		}
	}
	return nil
}

// keyNamespace is a prefix of the keys of one group and rank.
type keyNamespace struct {
	tp, pp int
	prefix string // the key up to the hash
}

// namespaces returns the key namespaces of a group. Before 2026-08-17 the pcp and dcp ranks
// are those of the worker. From then on every pcp rank stores, and the dcp rank follows from
// the tp rank.
func (c *WorkerCase) namespaces(g int) []keyNamespace {
	var list []keyNamespace
	add := func(t, pcp, dcp, p int) {
		prefix := fmt.Sprintf("%s@tp_rank:%d@pcp%d@dcp%d@pp_rank:%d@group:%d@", c.ModelName, t, pcp, dcp, p, g)
		if c.CachePrefix != "" {
			prefix = c.CachePrefix + "@" + prefix
		}
		list = append(list, keyNamespace{tp: t, pp: p, prefix: prefix})
	}
	for t := range c.TPSize {
		for p := range c.PPSize {
			if c.DCPSize == 0 {
				add(t, c.PCPRank, c.DCPRank, p)
				continue
			}
			for pcp := range c.PCPSize {
				add(t, pcp, t%c.DCPSize, p)
			}
		}
	}
	return list
}

// isAbsent reports whether the case removes raw hash i of group g on a rank.
func (c *WorkerCase) isAbsent(g, t, p, i int) bool {
	return slices.ContainsFunc(c.Absent, func(a absence) bool {
		return a.Group == g && (a.TP == nil || slices.Contains(a.TP, t)) &&
			(a.PP == nil || slices.Contains(a.PP, p)) && contains(a.Ranges, i)
	})
}

func contains(ranges []Range, i int) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r[0] <= i && i < r[1] })
}

// ErrStore is the error of a scripted store that fails.
var ErrStore = errors.New("conformance: the scripted store fails")

// Store is the scripted store of a worker case. It answers as the case says, and records the
// calls.
type Store struct {
	mode    string
	content map[string]bool
	calls   int      // of Exists
	keys    []string // of the last call
}

// SetPrefixes gives a case of a release the key prefixes of each store group, in the
// documented order and without the last @. It fails if they are not the recorded ones.
func (c *WorkerCase) SetPrefixes(prefixes [][]string) error {
	if c.CapacityOnly {
		c.prefixes = [][]string{} // nothing is asked, and none are recorded
		return nil
	}
	var all []string
	counts := []int{}
	for _, group := range prefixes {
		all = append(all, group...)
		counts = append(counts, len(group))
	}
	digest := sha256.Sum256([]byte(strings.Join(all, "\n")))
	if want := &c.Expect; !slices.Equal(counts, want.PrefixCounts) || hex.EncodeToString(digest[:]) != want.PrefixesSHA256 {
		return fmt.Errorf("conformance: case %s: the prefixes %q are not the recorded %d", c.ID, all, want.PrefixCounts)
	}
	c.prefixes = prefixes
	return nil
}

// ContentOf returns the keys that the store of a case of seeded_lookup.json has, given the key
// prefixes of each store group as for SetPrefixes. The file has none recorded.
func (c *WorkerCase) ContentOf(prefixes [][]string) (map[string]bool, error) {
	c.prefixes = prefixes
	return c.Content()
}

// releaseContent returns the keys that the scripted store of a case of a release has.
func (c *WorkerCase) releaseContent() map[string]bool {
	blob := c.Blob()
	content := map[string]bool{}
	for g, group := range c.prefixes {
		for m, prefix := range group {
			for i := range c.NumHashes {
				if contains(c.Present[g], i) && !c.lacks(g, m, i) {
					content[prefix+"@"+hex.EncodeToString(blob[i*c.HashLen:(i+1)*c.HashLen])] = true
				}
			}
		}
	}
	return content
}

// lacks reports whether the case of a release removes raw hash i of a store group under a
// prefix.
func (c *WorkerCase) lacks(g, prefix, i int) bool {
	return slices.ContainsFunc(c.Absent, func(a absence) bool {
		return a.Group == g && (a.Prefix == nil || slices.Contains(a.Prefix, prefix)) && contains(a.Ranges, i)
	})
}

// NewStore returns the scripted store of the case, with its content.
func (c *WorkerCase) NewStore() (*Store, error) {
	content, err := c.Content()
	return &Store{mode: c.Store, content: content}, err
}

// Exists returns one answer for each key, or the wrong answer of the case.
func (s *Store) Exists(keys []string) ([]int, error) {
	s.calls++
	s.keys = slices.Clone(keys)
	if s.mode == "raises" {
		return nil, ErrStore
	}
	present, absent := 1, 0
	switch s.mode {
	case "negative":
		absent = -1
	case "twos":
		present = 2
	}
	answers := make([]int, len(keys))
	for i, key := range keys {
		answers[i] = absent
		if s.content[key] {
			answers[i] = present
		}
	}
	switch s.mode {
	case "short_result":
		answers = answers[:len(answers)-1]
	case "long_result":
		answers = append(answers, 1)
	}
	return answers, nil
}

// PoolJSON returns a pool configuration in the names of the vectors. The extra options of a
// release stand beside the other fields.
func (c *WorkerCase) PoolJSON() ([]byte, error) {
	fields := map[string]any{}
	if err := json.Unmarshal(c.Raw, &fields); err != nil {
		return nil, err
	}
	c.ExtraConfig.addTo(fields)
	return json.Marshal(fields)
}

// extraConfig holds the connector's extra options that a pool has fields for.
type extraConfig struct {
	CachePrefix             string            `json:"cache_prefix"`
	StoreTPSize             json.RawMessage   `json:"store_tp_size"`
	EnableStoreTPLCM        any               `json:"enable_store_tp_lcm"`
	PrefillTPSizes          []json.RawMessage `json:"prefill_tp_sizes"`
	EnableCrossLayersBlocks any               `json:"enable_cross_layers_blocks"`
}

// addTo adds the options to the fields of a pool. A size that is no integer becomes 0: Python
// does not take 2.0 for one.
func (x *extraConfig) addTo(fields map[string]any) {
	if x.StoreTPSize != nil && string(x.StoreTPSize) != "null" {
		fields["store_tp_size"] = wholeNumber(x.StoreTPSize)
	}
	fields["enable_store_tp_lcm"] = x.EnableStoreTPLCM == true
	sizes := []int{}
	for _, size := range x.PrefillTPSizes {
		sizes = append(sizes, wholeNumber(size))
	}
	fields["prefill_tp_sizes"] = sizes
	text, _ := x.EnableCrossLayersBlocks.(string)
	fields["enable_cross_layers_blocks"] = x.EnableCrossLayersBlocks == true || strings.EqualFold(text, "true")
}

// wholeNumber returns the value of an integer literal, 0 of anything else.
func wholeNumber(text json.RawMessage) int {
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return n
}

// Judge compares an answer, and the keys that the store was asked for, with the recording.
// class is the reference's exception class for err, "" if err is nil.
func (c *WorkerCase) Judge(s *Store, hit int64, tail [][2]int64, err error, class string) Verdict {
	want := &c.Expect
	switch {
	case class != want.Error:
		return Differs("error %q (%v), want %q", class, err, want.Error)
	case err == nil && hit != want.HitLength:
		return Differs("hit %d, want %d", hit, want.HitLength)
	case err == nil && !slices.Equal(tail, want.TailKeyBoundaries):
		return Differs("tail boundaries %v, want %v", tail, want.TailKeyBoundaries)
	case s.calls != want.StoreCalls:
		return Differs("%d store calls, want %d", s.calls, want.StoreCalls)
	case len(s.keys) != want.NumKeys:
		return Differs("%d keys asked, want %d", len(s.keys), want.NumKeys)
	case want.KeysSHA256 == nil:
		return Verdict{}
	}
	for i, key := range want.FirstKeys {
		if s.keys[i] != key {
			return Differs("key %s is %q, want %q", strconv.Itoa(i), s.keys[i], key)
		}
	}
	if last := s.keys[len(s.keys)-1]; last != *want.LastKey {
		return Differs("last key %q, want %q", last, *want.LastKey)
	}
	digest := sha256.Sum256([]byte(strings.Join(s.keys, "\n")))
	if hex.EncodeToString(digest[:]) != *want.KeysSHA256 {
		return Differs("the asked keys differ between the third and the last")
	}
	return Verdict{}
}
