package diagnosis

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// keySample is a Sample, parsed. Keys that are not of blocks are left out.
type keySample struct {
	keys     []blockKey
	complete bool // the store has no other keys of blocks
}

// blockKey is a parsed key.
type blockKey struct {
	pool   string // [cache_prefix@]model
	layout string // see coordinator.Pool
	hash   string // in hex
}

// keyPattern matches the reference's keys and those of LMDeploy; see coordinator.KeyPrefix.
var keyPattern = regexp.MustCompile(`(?s)^(.*)@tp_rank:\d+(@pcp\d+@dcp\d+@pp_rank:\d+)?@group:\d+@([0-9a-f]+)$`)

// parseKey parses a block's key. ok is false for any other key.
func parseKey(key string) (k blockKey, ok bool) {
	m := keyPattern.FindStringSubmatch(key)
	if m == nil {
		return k, false
	}
	layout := ""
	if m[2] == "" {
		layout = coordinator.LayoutLMDeploy
	}
	return blockKey{pool: m[1], layout: layout, hash: m[3]}, true
}

// parseSample parses the keys of a sample.
func parseSample(sample Sample) keySample {
	s := keySample{complete: sample.Complete}
	for _, key := range sample.Keys {
		if k, ok := parseKey(key); ok {
			s.keys = append(s.keys, k)
		}
	}
	return s
}

// ofPool returns the keys of one pool.
func (s keySample) ofPool(name string) keySample {
	own := keySample{complete: s.complete}
	for _, k := range s.keys {
		if k.pool == name {
			own.keys = append(own.keys, k)
		}
	}
	return own
}

// hashLengths returns the lengths of the hashes in bytes, ascending.
func (s keySample) hashLengths() []int {
	lengths := map[int]bool{}
	for _, k := range s.keys {
		lengths[len(k.hash)/2] = true
	}
	return slices.Sorted(maps.Keys(lengths))
}

// storeNamespace is what a store namespace looks like, at the end of a pool's name.
var storeNamespace = regexp.MustCompile(`(@store_tp:\d+)?@store_pp:\d+@store_format:[^@]*$`)

// splitName splits the name of a pool, cache_prefix@model with a store namespace behind it.
func splitName(name string) (prefix, model, namespace string) {
	namespace = storeNamespace.FindString(name)
	name = strings.TrimSuffix(name, namespace)
	at := strings.LastIndexByte(name, '@')
	return name[:max(0, at)], name[at+1:], namespace
}
