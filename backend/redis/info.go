package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Info describes the server or the cluster, as INFO reports it.
type Info struct {
	// Server is "redis" or "valkey", Version its version. Mode is "standalone" or "cluster",
	// Role "master" or "slave". They are empty if the user has no permission for INFO.
	Server, Version, Mode, Role string
	// Nodes is the number of primaries.
	Nodes int
	// RoundTrip is the shortest of five round trips, to the slowest node.
	RoundTrip time.Duration
}

// Info describes the store. It needs PING and INFO; without permission for INFO it leaves out what
// depends on it.
func (b *Backend) Info(ctx context.Context) (Info, error) {
	var mu sync.Mutex
	var info Info
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			nodeInfo, err := b.nodeInfo(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				info.merge(nodeInfo)
			}
			return err
		})
	})
	mu.Lock() // an abandoned call may still write
	defer mu.Unlock()
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// merge adds a node.
func (i *Info) merge(node Info) {
	i.Server, i.Version, i.Mode, i.Role = node.Server, node.Version, node.Mode, node.Role
	i.Nodes++
	i.RoundTrip = max(i.RoundTrip, node.RoundTrip)
}

// nodeInfo describes one primary.
func (b *Backend) nodeInfo(ctx context.Context, node *goredis.Client) (info Info, err error) {
	for range 5 {
		start := time.Now()
		if err := node.Ping(ctx).Err(); err != nil && !isNoPermission(err) {
			return info, err
		}
		if took := time.Since(start); info.RoundTrip == 0 || took < info.RoundTrip {
			info.RoundTrip = took
		}
	}
	text, err := node.Info(ctx).Result()
	if err != nil && !isNoPermission(err) {
		return info, err
	}
	info.parse(text)
	return info, nil
}

// isNoPermission reports whether the ACL of the user forbids a command.
func isNoPermission(err error) bool { return goredis.HasErrorPrefix(err, "NOPERM") }

// infoFields returns the fields of a reply of INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// parse reads the reply of INFO.
func (i *Info) parse(text string) {
	fields := infoFields(text)
	i.Server, i.Version, i.Mode, i.Role = fields["server_name"], fields["redis_version"], fields["redis_mode"], fields["role"]
	if version := fields["valkey_version"]; version != "" {
		i.Server, i.Version = "valkey", version
	}
	if mode := fields["server_mode"]; mode != "" {
		i.Mode = mode
	}
	if i.Server == "" && i.Version != "" {
		i.Server = "redis"
	}
}
