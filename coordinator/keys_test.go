package coordinator

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// key returns the key of a block of group g on rank Ranks(g)[rank].
func (c *Coordinator) key(g, rank int, hash []byte) string {
	return c.KeyPrefix(g, c.Ranks(g)[rank]) + hex.EncodeToString(hash)
}

// The keys are those of build_store_key of LMDeploy 0.18.0, and its lookup finds all of a prompt.
func TestLMDeployKeys(t *testing.T) {
	hash := sha256.Sum256([]byte("block"))
	digits := hex.EncodeToString(hash[:])
	for _, test := range []struct {
		pool Pool
		want []string
	}{
		{Pool{ModelName: "org/m", TPSize: 4, NumKVHead: 2}, []string{"org/m@tp_rank:0@group:0@" + digits, "org/m@tp_rank:1@group:0@" + digits}},
		{Pool{ModelName: "unnamed-model", CachePrefix: "p"}, []string{"p@unnamed-model@tp_rank:0@group:0@" + digits}},
	} {
		test.pool.Layout = LayoutLMDeploy
		c, err := New(test.pool)
		require.NoError(t, err)
		for _, numTokens := range []int64{16, 17} {
			hit, err := c.Lookup(numTokens, NewHashes(hash[:], len(hash)), ExistsFunc(func(keys []string) ([]int, error) {
				require.Equal(t, test.want, keys)
				return slices.Repeat([]int{1}, len(keys)), nil
			}))
			require.NoError(t, err)
			require.EqualValues(t, 16, hit.Tokens)
		}
	}
	for _, pool := range []Pool{{VLLM: NewestRelease()}, {PPSize: 2}, {UseEagle: true}, {Groups: []Group{{BlockSize: 32}}}} {
		pool.Layout = LayoutLMDeploy
		_, err := New(pool)
		require.ErrorIs(t, err, ErrInvalidPool, "%+v", pool)
	}
	_, err := New(Pool{Layout: "trt"})
	require.ErrorContains(t, err, `"trt" is no layout of keys`)
}
