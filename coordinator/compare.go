package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Difference is a field in which a described pool differs from a configured one. The values
// are as in JSON; that of a field without a value is "none".
type Difference struct {
	Field      string `json:"field"` // its path in the pool, such as "groups[1].kind"
	Configured string `json:"configured"`
	Described  string `json:"described"`
}

// String returns a phrase: tp_size is 2, described as 4.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s, described as %s", d.Field, d.Configured, d.Described)
}

// Compare returns the fields in which an engine's description of its pool differs from the
// pool of c. written is that pool as it was configured, before New filled in its defaults.
// Differences are the fields that were written and have another value, and those left out
// whose defaults give other answers or keys. The release counts by its rules, and what has no
// effect on lookups does not count: RetentionInterval, and Variant where it makes the same
// groups equal.
func (c *Coordinator) Compare(written Pool, described *Coordinator) []Difference {
	set, want, got := fieldsOf(written), fieldsOf(c.pool), fieldsOf(described.pool)
	for _, fields := range []map[string]string{want, got} {
		if fields["kv_cache_layout"] == "" { // New leaves its default out
			fields["kv_cache_layout"] = strconv.Quote(defaultKVCacheLayout)
		}
	}
	equal := equalAnswers(c, described)
	all := maps.Clone(want)
	maps.Copy(all, got)
	var differences []Difference
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if field == "model_name" && c.pool.KeyModel() == described.pool.KeyModel() {
			continue
		}
		if want[field] != got[field] && counts(field, set, want, equal) {
			differences = append(differences, Difference{field, orNone(want[field]), orNone(got[field])})
		}
	}
	switch {
	case !sameRelease(c.pool.Revision, described.pool.Revision):
		differences = append(differences, Difference{"vllm", c.pool.FittingReleases(), described.pool.FittingReleases()})
	case !equal && len(differences) == 0:
		differences = append(differences, Difference{"keys", c.firstKey(), described.firstKey()})
	}
	return differences
}

// firstKey returns the prefix of the first key that a lookup asks for, in quotes.
func (c *Coordinator) firstKey() string { return strconv.Quote(c.groups[0].prefixes[0]) }

// counts reports whether a field that differs is a difference of the pools. equal says that
// both give the same answers.
func counts(field string, written, want map[string]string, equal bool) bool {
	switch name := field[strings.LastIndexByte(field, '.')+1:]; name {
	case "vllm", "allow_unknown_vllm", "revision", "retention_interval":
		return false // the release is compared by its rules
	case "hash_len":
		return want[field] != "" && !equal // unknown if it was not configured
	case "variant":
		return !equal
	}
	return written[field] != "" || !equal
}

// sameRelease reports whether the lookups of two revisions are the same. Those of 2026-06-20
// are those of 0.24.0.
func sameRelease(a, b Revision) bool {
	class := func(r Revision) Revision {
		if r == Revision0240 {
			return Revision20260620
		}
		return r
	}
	return class(a) == class(b)
}

// equalAnswers reports whether the lookups of two pools ask for the same keys and have the
// same answers, whatever is stored.
func equalAnswers(a, b *Coordinator) bool {
	if !sameRelease(a.pool.Revision, b.pool.Revision) || a.align != b.align || a.fineGrained != b.fineGrained ||
		a.pool.HashBlockSize != b.pool.HashBlockSize || a.pool.CapacityOnly != b.pool.CapacityOnly || len(a.groups) != len(b.groups) {
		return false
	}
	if a.pool.HashLen != 0 && b.pool.HashLen != 0 && a.pool.HashLen != b.pool.HashLen {
		return false
	}
	for g := range a.groups {
		x, y := &a.groups[g], &b.groups[g]
		if x.Kind != y.Kind || x.BlockSize != y.BlockSize || x.poolGroup != y.poolGroup || x.attention != y.attention ||
			x.eagle != y.eagle || x.keyMask != y.keyMask || !slices.Equal(x.prefixes, y.prefixes) {
			return false
		}
		if x.Kind.IsWindow() && x.SlidingWindow != y.SlidingWindow || x.Kind == ChunkedLocalAttention && x.AttentionChunkSize != y.AttentionChunkSize {
			return false
		}
	}
	return true
}

// fieldsOf returns the values of a pool's fields in JSON, by path. What is not set is left out.
func fieldsOf(p Pool) map[string]string {
	fields := map[string]string{}
	text, err := json.Marshal(p)
	if err != nil { // the kind of a pool that New has refused
		return fields
	}
	var object map[string]any
	if json.Unmarshal(text, &object) == nil {
		flattenFields(fields, "", object)
	}
	return fields
}

// flattenFields adds the fields of an object to fields. Their paths begin with prefix.
func flattenFields(fields map[string]string, prefix string, object map[string]any) {
	for name, value := range object {
		switch v := value.(type) {
		case []any:
			if objects := objectsOf(v); objects != nil {
				for i, object := range objects {
					flattenFields(fields, fmt.Sprintf("%s%s[%d].", prefix, name, i), object)
				}
				continue
			}
		case nil:
			continue
		}
		text, err := json.Marshal(value)
		if err != nil || string(text) == "0" && (name == "hash_block_size" || name == "scheduler_block_size") { // not set
			continue
		}
		fields[prefix+name] = string(text)
	}
}

// objectsOf returns a list of objects, nil if the list has anything else.
func objectsOf(list []any) []map[string]any {
	var objects []map[string]any
	for _, v := range list {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		objects = append(objects, object)
	}
	return objects
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}
