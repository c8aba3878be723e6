package coordinator

import (
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
)

// A key names one block in one place:
//
//	[cache_prefix@]model@tp_rank:T@pcpX@dcpY@pp_rank:P@group:G@hash
//
// where the hash is the chunk's in lower-case hex, the prefix part is left out
// if the prefix is empty, and model is what follows the last slash of the
// model's name.

// AppendKey appends to dst the key of a block of group g, with the hash that
// keys its chunk, on the rank Ranks(g)[rank]. It allocates only to grow dst,
// and returns the grown slice.
func (c *Coordinator) AppendKey(dst []byte, g, rank int, hash []byte) []byte {
	dst = append(dst, c.groups[g].prefixes[rank]...)
	return hex.AppendEncode(dst, hash)
}

// KeyPrefix returns the keys of group g on rank r up to the hash. The rank need
// not be one of Ranks(g).
func (c *Coordinator) KeyPrefix(g int, r Rank) string {
	model := strings.TrimRight(c.pool.ModelName, "/")
	model = model[strings.LastIndexByte(model, '/')+1:]
	if c.pool.CachePrefix != "" {
		model = c.pool.CachePrefix + "@" + model
	}
	return fmt.Sprintf("%s@tp_rank:%d@pcp%d@dcp%d@pp_rank:%d@group:%d@", model, r.TP, r.PCP, r.DCP, r.PP, g)
}

// keyPrefixes returns the prefixes of group g in the order of its ranks.
func (c *Coordinator) keyPrefixes(g int) []string {
	prefixes := make([]string, len(c.groups[g].ranks))
	for i, r := range c.groups[g].ranks {
		prefixes[i] = c.KeyPrefix(g, r)
	}
	return prefixes
}

// JoinKeys returns the keys of hashes, which are n of hashLen bytes each, behind
// a prefix (a KeyPrefix). They are parts of one string, so they cost two
// allocations, and each keeps all of them in memory.
func JoinKeys(prefix string, n, hashLen int, hashes iter.Seq2[int, []byte]) []string {
	prefixes := []string{prefix}
	var b keyBuilder
	b.grow(prefixes, n, hashLen)
	for _, hash := range hashes {
		b.add(prefixes, hash)
	}
	return b.keys
}

// keyBuilder builds keys as parts of one string. Whoever knows how many there
// will be makes room for all of them first.
type keyBuilder struct {
	keys []string
	text strings.Builder
	hex  []byte // the hash at hand

	bytes, count int // to make room for
	held         int // hashes since the processor was yielded
}

// need counts n hashes of so many bytes behind each of the prefixes.
func (b *keyBuilder) need(prefixes []string, n, hashLen int) {
	if n == 0 {
		return
	}
	for _, prefix := range prefixes {
		b.bytes += n * (len(prefix) + hex.EncodedLen(hashLen))
	}
	b.count += n * len(prefixes)
}

// memory is what the keys that need has counted take in bytes, with a copy of their
// text, which a store sends, and its answers.
func (b *keyBuilder) memory() int64 {
	const header, answer = 16, 8
	return 2*int64(b.bytes) + (header+answer)*int64(b.count)
}

// room makes room for what need has counted.
func (b *keyBuilder) room() {
	b.text.Grow(b.bytes)
	b.keys = make([]string, 0, b.count)
}

func (b *keyBuilder) grow(prefixes []string, n, hashLen int) {
	b.need(prefixes, n, hashLen)
	b.room()
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
	if b.held++; b.held == yieldEvery {
		b.held = 0
		yields.yield()
	}
}

// yieldEvery is after how many hashes, some ten microseconds, a builder of keys yields
// its processor: a long prompt takes a millisecond, for which the kernel would let an
// event loop wait where there are few processors. It makes building 3 % slower.
const yieldEvery = 128
