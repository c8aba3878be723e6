package lookup

import (
	"context"
	"math"
)

// NumBlocks returns about how many blocks of HashBlockSize tokens the pool has room for, in all
// groups and on all ranks, 0 if that is not known. Over the memory index it is known once that is
// full. Over a backend it is RemoteConfig.NumBlocks or, if all groups are of full attention, what
// the store says; unless the pool is alone, others share that.
func (s *Service) NumBlocks(ctx context.Context, isAlone bool) (int64, error) {
	stride, perBlock, allFull := math.MaxInt, 0., true
	for g := range s.coord.NumGroups() {
		if s.coord.Group(g).Kind.IsFull() {
			stride = min(stride, s.coord.KeyStride(g))
			perBlock += float64(len(s.coord.Ranks(g))) / float64(s.coord.Stride(g))
		} else {
			allFull = false // how many keys such a group has is not known
		}
	}
	if s.memory != nil {
		return s.memory.numBlocks(stride), nil
	}
	shared := s.remote.shared
	switch {
	case !isAlone:
		return 0, nil
	case shared.cfg.NumBlocks > 0:
		return shared.cfg.NumBlocks, nil
	case !allFull:
		return 0, nil
	case !shared.health.isClosed():
		return 0, errStoreFails
	}
	ctx, cancel := withTimeout(ctx, shared.cfg.Timeout)
	defer cancel()
	keys, err := s.remote.backend.MaxKeys(ctx)
	return int64(float64(keys) / perBlock), err
}
