package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// sample is some of the keys of a store that have the shape of a block's.
type sample struct {
	keys     []blockKey
	complete bool // there are no others
}

// blockKey is a key taken apart, or a set with one of its members.
type blockKey struct {
	name  string // [cache_prefix@]model
	rank  coordinator.Rank
	group int
	hash  string // "" for a set whose members may not be looked at
	set   bool
}

// keyShape is the reference's key; see coordinator.AppendKey.
var keyShape = regexp.MustCompile(`(?s)^(.*)@tp_rank:(\d+)@pcp(\d+)@dcp(\d+)@pp_rank:(\d+)@group:(\d+)(?:@([0-9a-f]+))?$`)

// parseKey takes a key apart, or the name of a set.
func parseKey(key string) (k blockKey, ok bool) {
	m := keyShape.FindStringSubmatch(key)
	if m == nil {
		return k, false
	}
	var n [5]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[2+i]) // digits
	}
	return blockKey{name: m[1], rank: coordinator.Rank{TP: n[0], PCP: n[1], DCP: n[2], PP: n[3]}, group: n[4], hash: m[7]}, true
}

// newSample takes keys and sets apart and leaves out what is no block's.
func newSample(keys, sets []string, complete bool) sample {
	s := sample{complete: complete}
	for i, list := range [][]string{keys, sets} {
		for _, key := range list {
			if k, ok := parseKey(key); ok && (k.hash != "" || i == 1) {
				k.set = i == 1
				s.keys = append(s.keys, k)
			}
		}
	}
	return s
}

// of returns the keys of one pool.
func (s sample) of(name string) sample {
	ours := sample{complete: s.complete}
	for _, k := range s.keys {
		if k.name == name {
			ours.keys = append(ours.keys, k)
		}
	}
	return ours
}

// poolName is how all keys of a pool begin.
func poolName(rules *coordinator.Coordinator) string {
	prefix := rules.KeyPrefix(0, coordinator.Rank{})
	return prefix[:strings.LastIndex(prefix, "@tp_rank:")]
}

// splitName takes apart cache_prefix@model.
func splitName(name string) (prefix, model string) {
	at := strings.LastIndexByte(name, '@')
	return name[:max(0, at)], name[at+1:]
}
