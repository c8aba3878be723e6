//go:build linux

package crowd

import (
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
)

// newPool returns the pool of the engines, which are of the newest release.
func newPool(tp int) coordinator.Pool {
	pool := workload.EnginePool(tp)
	pool.VLLM = coordinator.NewestRelease()
	return pool
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
