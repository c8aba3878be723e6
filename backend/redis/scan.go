package redis

import (
	"context"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/internal/requesterror"
)

// scanCount is the COUNT of SCAN: about how many keys of the database one call visits.
const scanCount = 1000

// forEachPrimary calls visit for the server, or concurrently for all primaries of the cluster. It fails if the cluster
// has none: it has not been set up.
func (b *Backend) forEachPrimary(ctx context.Context, visit func(ctx context.Context, node *goredis.Client) error) error {
	switch client := b.client.(type) {
	case *goredis.ClusterClient:
		var visited atomic.Bool
		err := client.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) (err error) {
			defer requesterror.Recover(&err) // the goroutine is the driver's
			visited.Store(true)
			return visit(ctx, node)
		})
		if err == nil && !visited.Load() {
			return &connError{mismatch: true, text: b.endpoint.String() + ": no server of the cluster has slots: is the cluster set up?"}
		}
		return err
	case *goredis.Client:
		return visit(ctx, client)
	}
	return goredis.ErrClosed
}

// scan calls visit with the keys of a node that match pattern, until visit returns false.
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

// filterPoolKeys returns the keys of the pool. It overwrites found.
func (b *Backend) filterPoolKeys(found []string) []string {
	inPool := found[:0]
	for _, key := range found {
		if b.isPoolKey(key) {
			inPool = append(inPool, key)
		}
	}
	return inPool
}

// isPoolKey reports whether key is that of a block of the pool.
func (b *Backend) isPoolKey(key string) bool {
	rest, ok := strings.CutPrefix(key, b.cfg.KeyPrefix)
	for _, part := range []string{rankPart, "@pcp", "@dcp", "@pp_rank:", "@group:"} {
		if !ok {
			return false
		}
		if rest, ok = strings.CutPrefix(rest, part); ok {
			rest, ok = cutChars(rest, "0123456789")
		}
	}
	if ok {
		if rest, ok = strings.CutPrefix(rest, "@"); ok {
			rest, ok = cutChars(rest, "0123456789abcdef")
		}
	}
	return ok && rest == ""
}

// cutChars removes all leading characters that are in set. It returns false if there is
// none.
func cutChars(text, set string) (rest string, ok bool) {
	rest = strings.TrimLeft(text, set)
	return rest, len(rest) < len(text)
}

// escapeGlob returns the glob pattern that matches only text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
