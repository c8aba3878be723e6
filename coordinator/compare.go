package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is a field in which a described pool differs from a configured one. The values
// are those of the field in the pool's JSON, null if it has none.
type Difference struct {
	Field      string          `json:"field"` // its path in the pool, such as "groups[1].kind"
	Configured json.RawMessage `json:"configured"`
	Described  json.RawMessage `json:"described"`
}

// String returns a phrase: tp_size is 2, described as 4. A field without a value is none.
func (d Difference) String() string {
	phrase := func(value json.RawMessage) string {
		if string(value) == "null" {
			return "none"
		}
		return string(value)
	}
	return fmt.Sprintf("%s is %s, described as %s", d.Field, phrase(d.Configured), phrase(d.Described))
}

// newDifference returns a difference of two values in JSON, "" if a field has none.
func newDifference(field, configured, described string) Difference {
	return Difference{field, json.RawMessage(cmp.Or(configured, "null")), json.RawMessage(cmp.Or(described, "null"))}
}

// Compare returns the fields in which an engine's description of its pool differs from the
// pool of c. configured is the pool of c before New filled in its defaults. Differences are
// the fields that are set there and have another value, and those left out whose defaults give
// other answers or keys. The release counts by its rules, and what has no effect on lookups
// does not count: RetentionInterval, and Variant where it makes the same groups equal.
func (c *Coordinator) Compare(configured Pool, described *Coordinator) []Difference {
	want, got, equal := c.pool, described.pool, equalAnswers(c, described)
	for _, p := range []*Pool{&want, &got} { // New leaves this default out
		p.KVCacheLayout = cmp.Or(p.KVCacheLayout, defaultKVCacheLayout)
	}
	if want.KeyModel() == got.KeyModel() {
		got.ModelName = want.ModelName
	}
	differences := compareFields("", &configured, &want, &got, equal)
	for g := range max(len(want.Groups), len(got.Groups)) {
		if a, b := groupAt(&want, g), groupAt(&got, g); !reflect.DeepEqual(a, b) {
			differences = append(differences, compareFields(groupPath(g)+".", groupAt(&configured, g), a, b, equal)...)
		}
	}
	slices.SortFunc(differences, func(a, b Difference) int { return cmp.Compare(a.Field, b.Field) })
	switch {
	case !sameLookups(c.pool.release(), described.pool.release()):
		differences = append(differences, newDifference("vllm", text(c.pool.releaseName()), text(described.pool.releaseName())))
	case !equal && len(differences) == 0:
		differences = append(differences, newDifference("keys", c.firstKey(), described.firstKey()))
	}
	return differences
}

// notCompared are the fields of a pool that compareFields passes over: groups have fields of their own, the release
// counts by its rules, and retention_interval has no effect on lookups.
var notCompared = []string{"groups", "vllm", "retention_interval"}

// compareFields returns the differences of two pools, or of two groups, that matter. path is that of their fields.
func compareFields[T any](path string, configured, want, got *T, equal bool) (differences []Difference) {
	set, a, b := setFields(configured), setFields(want), setFields(got)
	names := maps.Clone(a)
	maps.Copy(names, b)
	for name := range names {
		if a[name] != b[name] && !slices.Contains(notCompared, name) && matters(name, set[name], a[name], equal) {
			differences = append(differences, newDifference(path+name, a[name], b[name]))
		}
	}
	return differences
}

// setFields returns the fields of a pool or a group that are set, as in its JSON; none of nil. A block size of 0 is not
// set.
func setFields[T any](of *T) map[string]string {
	var values map[string]json.RawMessage
	text, _ := json.Marshal(of) // New has checked the kinds
	_ = json.Unmarshal(text, &values)
	fields := map[string]string{}
	for name, value := range values {
		if !strings.HasSuffix(name, "block_size") || string(value) != "0" {
			fields[name] = string(value)
		}
	}
	return fields
}

// groupAt returns group g of p, nil if there is none.
func groupAt(p *Pool, g int) *Group {
	if g >= len(p.Groups) {
		return nil
	}
	return &p.Groups[g]
}

// text returns a text as in JSON.
func text(s string) string {
	quoted, _ := json.Marshal(s) // a text has no errors
	return string(quoted)
}

// firstKey returns the prefix of the first key that a lookup asks for, as in JSON.
func (c *Coordinator) firstKey() string { return text(c.groups[0].prefixes[0]) }

// matters reports whether a field that differs is a difference of the pools. configured and want
// are its values without and with the defaults of New. equal says that both pools
// give the same answers.
func matters(name, configured, want string, equal bool) bool {
	switch name {
	case "hash_len":
		return want != "" && !equal // unknown if it was not configured
	case "variant":
		return !equal
	}
	return configured != "" || !equal
}

// equalAnswers reports whether the lookups of two pools ask for the same keys and have the
// same answers, whatever is stored.
func equalAnswers(a, b *Coordinator) bool {
	if !sameLookups(a.pool.release(), b.pool.release()) || a.align != b.align || a.fineGrained != b.fineGrained ||
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
