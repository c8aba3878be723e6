package lookup

import (
	"context"
	"math"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hitline/hitline/backend"
)

// NumBlocks returns about how many blocks of HashBlockSize tokens the pool has room for, in all groups and on all ranks, 0 if that is
// not known. Over the memory index it is known once that is full. Over a backend it is RemoteConfig.NumBlocks or, if all groups are of
// full attention, what a backend.Sizer says; unless the pool is alone, others share that.
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
	if s.index != nil {
		if stride == math.MaxInt {
			return 0, nil
		}
		entries := s.index.Stats().MaxEntries
		if _, evicts := s.index.EvictionAge(time.Now()); evicts {
			entries = s.index.Stats().Entries
		}
		return entries * int64(stride), nil
	}
	r := s.remote
	sizer, ok := r.store.(backend.Sizer)
	switch {
	case !isAlone:
		return 0, nil
	case r.cfg.NumBlocks > 0:
		return r.cfg.NumBlocks, nil
	case !ok || !allFull:
		return 0, nil
	case r.breaker.State() != gobreaker.StateClosed:
		return 0, errStoreFails
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	keys, err := sizer.MaxKeys(ctx)
	return int64(float64(keys) / perBlock), err
}
