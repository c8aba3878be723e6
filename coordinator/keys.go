package coordinator

import (
	"encoding/hex"
	"fmt"
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
