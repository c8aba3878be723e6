//go:build linux

package crowd

import (
	"github.com/hitline/hitline/coordinator"
)

// maxTP is the number of KV heads of the model: as many ranks have keys of their own.
const maxTP = 8

// newPool returns the pool of the engines. No model is run.
func newPool(tp int) coordinator.Pool {
	return coordinator.Pool{
		ModelName: "Llama-3.1-8B-Instruct", VLLM: coordinator.NewestRelease(),
		HashBlockSize: blockTokens, SchedulerBlockSize: blockTokens, TPSize: tp, NumKVHead: maxTP,
		Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: blockTokens}},
	}
}

// keyPrefixes returns what the keys of a block begin with, one for each rank.
func keyPrefixes(pool coordinator.Pool) ([]string, error) {
	c, err := coordinator.New(pool)
	if err != nil {
		return nil, err
	}
	var prefixes []string
	for _, rank := range c.Ranks(0) {
		prefixes = append(prefixes, c.KeyPrefix(0, rank))
	}
	return prefixes, nil
}
