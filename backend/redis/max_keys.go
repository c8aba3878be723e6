package redis

import (
	"context"
	"strconv"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// MaxKeys implements backend.Backend: the keys there, times maxmemory, divided by the memory that is used. It is 0 without a maxmemory,
// while less than half of it is used, and without permission for INFO or DBSIZE.
func (b *Backend) MaxKeys(ctx context.Context) (int64, error) {
	var sum, unknown atomic.Int64
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			text, err := node.Info(ctx, "memory").Result()
			if err == nil {
				var keys int64
				if keys, err = node.DBSize(ctx).Result(); err == nil {
					most, known := maxKeys(text, keys)
					sum.Add(most)
					if !known {
						unknown.Add(1)
					}
					return nil
				}
			}
			if isNoPermission(err) {
				unknown.Add(1)
				return nil
			}
			return err
		})
	})
	if err != nil || unknown.Load() > 0 {
		return 0, err
	}
	return sum.Load(), nil
}

// maxKeys returns how many keys a server has room for, by a reply of INFO and the keys there. It returns false if that is not known.
func maxKeys(info string, keys int64) (most int64, known bool) {
	fields := infoFields(info)
	used, _ := strconv.ParseFloat(fields["used_memory"], 64)
	limit, _ := strconv.ParseFloat(fields["maxmemory"], 64)
	if limit == 0 || used < limit/2 {
		return 0, false
	}
	return int64(float64(keys) * limit / used), true
}
