package coordinator

import "encoding/hex"

// key returns the key of a block of group g on rank Ranks(g)[rank].
func (c *Coordinator) key(g, rank int, hash []byte) string {
	return c.KeyPrefix(g, c.Ranks(g)[rank]) + hex.EncodeToString(hash)
}
