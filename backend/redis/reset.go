package redis

import (
	"context"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// scanCount is about how many keys of the database one step of a scan looks at.
const scanCount = 1000

// Reset removes the pool's keys and no others: the database is scanned for them,
// every primary of a cluster. Blocks stored meanwhile may stay, and so may blocks of
// slots that a cluster moves from one node to another meanwhile.
func (b *Backend) Reset(ctx context.Context) error {
	_, err := b.do(ctx, true, func(ctx context.Context) ([]int, error) {
		return nil, b.eachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			return b.scan(ctx, node, escapeGlob(b.cfg.KeyPrefix)+rankPart+"*", func(found []string) (bool, error) {
				return true, b.evictKeys(ctx, b.onlyOurs(found))
			})
		})
	})
	return err
}

// eachPrimary calls visit for the server or for all primaries of the cluster, at the
// same time.
func (b *Backend) eachPrimary(ctx context.Context, visit func(ctx context.Context, node *goredis.Client) error) error {
	switch client := b.client.(type) {
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, visit)
	case *goredis.Client:
		return visit(ctx, client)
	}
	return goredis.ErrClosed
}

// scan calls visit with the node's keys that match pattern, until it says no more.
func (b *Backend) scan(ctx context.Context, node *goredis.Client, pattern string, visit func(found []string) (more bool, err error)) error {
	for cursor := uint64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, next, err := node.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return err
		}
		more, err := visit(found)
		if err != nil {
			return err
		}
		if cursor = next; cursor == 0 || !more {
			return nil
		}
	}
}

// onlyOurs returns the keys of found that are the pool's.
func (b *Backend) onlyOurs(found []string) []string {
	ours := found[:0]
	for _, key := range found {
		if b.ours(key, b.cfg.Layout == LayoutKeys) {
			ours = append(ours, key)
		}
	}
	return ours
}

// ours tells whether key is one of the pool's: of a block, or else of a set.
func (b *Backend) ours(key string, block bool) bool {
	rest, ok := strings.CutPrefix(key, b.cfg.KeyPrefix)
	for _, part := range []string{rankPart, "@pcp", "@dcp", "@pp_rank:", "@group:"} {
		if !ok {
			return false
		}
		if rest, ok = strings.CutPrefix(rest, part); ok {
			rest, ok = cutSome(rest, "0123456789")
		}
	}
	if block && ok {
		if rest, ok = strings.CutPrefix(rest, "@"); ok {
			rest, ok = cutSome(rest, "0123456789abcdef")
		}
	}
	return ok && rest == ""
}

// cutSome cuts off all leading characters of a set, and false says there is none.
func cutSome(text, set string) (rest string, ok bool) {
	rest = strings.TrimLeft(text, set)
	return rest, len(rest) < len(text)
}

// escapeGlob returns the pattern that only text itself matches.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
