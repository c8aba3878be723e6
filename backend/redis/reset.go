package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
)

// Reset removes the keys of the pool and no others. It scans the database for them, in a
// cluster that of every primary. Blocks that are stored meanwhile may stay. So may those in
// slots that a cluster moves between nodes meanwhile.
func (b *Backend) Reset(ctx context.Context) error {
	return b.doChange(ctx, func(ctx context.Context) error {
		return b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			return b.scan(ctx, node, escapeGlob(b.cfg.KeyPrefix)+rankPart+"*", func(found []string) (bool, error) {
				return true, b.evictKeys(ctx, b.filterPoolKeys(found))
			})
		})
	})
}
