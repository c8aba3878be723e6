package coordinator

import (
	"encoding/hex"
	"fmt"
	"iter"
	"runtime"
	"strings"
)

// A key names one block of a group on one rank:
//
//	[cache_prefix@]model@tp_rank:T@pcpX@dcpY@pp_rank:P@group:G@hash
//
// hash is that of the chunk in lower-case hex. The first part is left out if the prefix is
// empty. model is the last path component of the model's name.

// LayoutLMDeploy is the Pool.Layout of keys of LMDeploy 0.18.0:
//
//	[cache_prefix@]model_name@tp_rank:T@group:0@hash
const LayoutLMDeploy = "lmdeploy"

// validateLayout refuses what engines with another layout than vLLM's do not have.
func (p *Pool) validateLayout() error {
	fields := []string{"layout"}
	switch {
	case p.Layout == "":
	case p.Layout != LayoutLMDeploy:
		return invalid(fields, "%.40q is no layout of keys; leave it out for vLLM's, or write %s", p.Layout, LayoutLMDeploy)
	case p.VLLM != "":
		return invalid(fields, "is %s beside vllm, a release of another engine; leave vllm out", p.Layout)
	case p.PPSize*p.PCPSize*p.DCPSize != 1 || p.PCPRank+p.DCPRank != 0 || p.UseEagle:
		return invalid(fields, "is %s, whose keys have tensor-parallel ranks alone; leave use_eagle and pp_size, pcp_size and dcp_size out", p.Layout)
	case len(p.Groups) != 1 || p.Groups[0] != Group{Kind: FullAttention, BlockSize: p.HashBlockSize}:
		return invalid(fields, "is %s, which stores full attention alone; leave groups out, and set hash_block_size", p.Layout)
	}
	return nil
}

// KeyModel returns what keys have of ModelName: its last path component, or all in LMDeploy's layout.
func (p *Pool) KeyModel() string {
	if p.Layout == LayoutLMDeploy {
		return p.ModelName
	}
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
	if c.pool.Layout == LayoutLMDeploy {
		return fmt.Sprintf("%s@tp_rank:%d@group:0@", model, r.TP)
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
// hex. The keys are parts of one string: they cost few allocations, and each keeps all of
// them in memory.
func JoinKeys(prefix string, n, hashLen int, hashes iter.Seq2[int, []byte]) []string {
	k := newKeys([]string{prefix}, n, n, hashLen)
	for _, hash := range hashes {
		k.add(0, 1, hash)
	}
	return k.Strings()
}

// Keys are the keys of one call of KeyStore.Exists. They are immutable, own their memory, and are
// safe for concurrent use. Their text is made when it is asked for.
type Keys struct {
	prefixes []string
	keys     []keyParts
	digits   []byte // the hashes in hex
	hexLen   int    // of a hash

	// Where the answers to keys can end early: see End.
	coord     *Coordinator
	numHashes int      // of the prompt
	positions []uint32 // in their groups, by hash; nil if no answer ends them
	starts    []int    // number of keys before each section, and of all
}

// keyParts are the indexes of a key's prefix and of its hash.
type keyParts struct{ prefix, hash uint32 }

// yieldEvery is the number of hashes, some hundred microseconds of work, after which the builder of keys
// lets others have its processor.
const yieldEvery = 2048

// newKeys returns no keys, with room for those of numHashes hashes of hashLen bytes.
func newKeys(prefixes []string, numHashes, numKeys, hashLen int) *Keys {
	hexLen := hex.EncodedLen(hashLen)
	return &Keys{
		prefixes: prefixes, hexLen: hexLen,
		keys: make([]keyParts, 0, numKeys), digits: make([]byte, 0, numHashes*hexLen),
	}
}

// add adds the keys of one hash, on each of the prefixes [first, first+n).
func (k *Keys) add(first, n int, hash []byte) {
	number := uint32(len(k.digits) / max(1, k.hexLen))
	if number%yieldEvery == yieldEvery-1 {
		runtime.Gosched()
	}
	k.digits = hex.AppendEncode(k.digits, hash)
	for i := first; i < first+n; i++ {
		k.keys = append(k.keys, keyParts{uint32(i), number})
	}
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.keys) }

// Append appends the text of key i.
func (k *Keys) Append(dst []byte, i int) []byte {
	key := k.keys[i]
	from := int(key.hash) * k.hexLen
	return append(append(dst, k.prefixes[key.prefix]...), k.digits[from:from+k.hexLen]...)
}

// End returns how many of the first keys still matter if key i is absent: Len unless the absence ends
// the hit. A store need not answer the keys from there on. i is then below End(i).
func (k *Keys) End(i int) int {
	if k.positions == nil {
		return len(k.keys)
	}
	key, g := k.keys[i], 0
	for g+1 < len(k.coord.groups) && k.coord.groups[g+1].prefixAt <= int(key.prefix) {
		g++
	}
	return k.starts[k.coord.sectionsTo(g, int(k.positions[key.hash]), k.numHashes)]
}

// answered reports whether answers are of all keys, or of those that still matter after one of them.
func (k *Keys) answered(answers []int) bool {
	if len(answers) >= len(k.keys) {
		return len(answers) == len(k.keys)
	}
	for i, answer := range answers {
		if answer != 1 && k.End(i) <= len(answers) {
			return true
		}
	}
	return false
}

// Strings returns the text of all keys, as parts of one string.
func (k *Keys) Strings() []string {
	size := 0
	for _, key := range k.keys {
		size += len(k.prefixes[key.prefix]) + k.hexLen
	}
	var text strings.Builder
	text.Grow(size)
	for _, key := range k.keys {
		from := int(key.hash) * k.hexLen
		text.WriteString(k.prefixes[key.prefix])
		text.Write(k.digits[from : from+k.hexLen])
	}
	all, list := text.String(), make([]string, len(k.keys))
	for i, key := range k.keys {
		n := len(k.prefixes[key.prefix]) + k.hexLen
		list[i], all = all[:n], all[n:]
	}
	return list
}
