package coordinator

import (
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
)

// A key names one block of a group on one rank:
//
//	[cache_prefix@]model@tp_rank:T@pcpX@dcpY@pp_rank:P@group:G@hash
//
// hash is that of the chunk in lower-case hex. The first part is left out if the prefix is
// empty. model is the last path component of the model's name.

// KeyModel returns what keys have of ModelName: its last path component.
func (p *Pool) KeyModel() string {
	model := strings.TrimRight(p.ModelName, "/")
	return model[strings.LastIndexByte(model, '/')+1:]
}

// KeyPrefix returns what the keys of group g on rank r begin with, up to the hash. r need
// not be one of Ranks(g).
func (c *Coordinator) KeyPrefix(g int, r Rank) string {
	model := c.pool.KeyModel()
	if c.pool.CachePrefix != "" {
		model = c.pool.CachePrefix + "@" + model
	}
	return fmt.Sprintf("%s%s@tp_rank:%d@pcp%d@dcp%d@pp_rank:%d@group:%d@", model, c.namespace, r.TP, r.PCP, r.DCP, r.PP, g)
}

// keyPrefixes returns the KeyPrefix of group g on each of its ranks.
func (c *Coordinator) keyPrefixes(g int) []string {
	prefixes := make([]string, len(c.groups[g].ranks))
	for i, r := range c.groups[g].ranks {
		prefixes[i] = c.KeyPrefix(g, r)
	}
	return prefixes
}

// JoinKeys returns prefix, a KeyPrefix, joined with each of n hashes of hashLen bytes in
// hex. The keys are parts of one string: they cost two allocations, and each keeps all of
// them in memory.
func JoinKeys(prefix string, n, hashLen int, hashes iter.Seq2[int, []byte]) []string {
	prefixes := []string{prefix}
	var b keyBuilder
	b.addSize(prefixes, n, hashLen)
	b.alloc()
	for _, hash := range hashes {
		b.add(prefixes, hash)
	}
	return b.keys
}

// keyBuilder builds keys as parts of one string: addSize for all keys, alloc, then add.
type keyBuilder struct {
	keys []string
	text strings.Builder
	hex  []byte // the last hash added

	textBytes, numKeys int64 // of all keys, by addSize
}

// addSize adds the size of the keys of n hashes of hashLen bytes on each prefix.
func (b *keyBuilder) addSize(prefixes []string, n, hashLen int) {
	if n == 0 {
		return
	}
	for _, prefix := range prefixes {
		b.textBytes += int64(n) * int64(len(prefix)+hex.EncodedLen(hashLen))
	}
	b.numKeys += int64(n) * int64(len(prefixes))
}

// memory returns the bytes of memory of the keys that addSize has counted, with a copy of
// their text, which a store sends, and the store's answers.
func (b *keyBuilder) memory() int64 {
	const header, answer = 16, 8 // bytes of a string header and of an int
	return 2*b.textBytes + (header+answer)*b.numKeys
}

// alloc allocates the keys that addSize has counted. They must fit the address space.
func (b *keyBuilder) alloc() {
	b.text.Grow(int(b.textBytes))
	b.keys = make([]string, 0, b.numKeys)
}

// add builds the keys of one hash, one for each prefix.
func (b *keyBuilder) add(prefixes []string, hash []byte) {
	b.hex = hex.AppendEncode(b.hex[:0], hash)
	for _, prefix := range prefixes {
		from := b.text.Len()
		b.text.WriteString(prefix)
		b.text.Write(b.hex)
		b.keys = append(b.keys, b.text.String()[from:])
	}
}
