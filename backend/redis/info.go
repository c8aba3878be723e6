package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Info is what a store says about itself.
type Info struct {
	// Server is "redis" or "valkey", Version its version, Mode "standalone" or
	// "cluster", and Role "master" or "slave"; empty where the user may not ask.
	Server, Version, Mode, Role string
	// Nodes is how many primaries there are.
	Nodes int
	// RoundTrip is the shortest of a few, to the slowest node.
	RoundTrip time.Duration
	// Blocks is how many blocks the pool has, counted if Sampled is false and else
	// estimated from a part of the database. It is -1 where the user may not ask.
	Blocks  int64
	Sampled bool
}

// sampleKeys is how many keys of a node are looked at before Info estimates.
const sampleKeys = 20000

// Info asks the store about itself.
func (b *Backend) Info(ctx context.Context) (Info, error) {
	var mu sync.Mutex
	var info Info
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.eachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			one, err := b.nodeInfo(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				info.add(one)
			}
			return err
		})
	})
	mu.Lock() // a call that is left behind may still write
	defer mu.Unlock()
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

func (i *Info) add(node Info) {
	i.Server, i.Version, i.Mode, i.Role = node.Server, node.Version, node.Mode, node.Role
	i.Nodes++
	i.RoundTrip = max(i.RoundTrip, node.RoundTrip)
	i.Sampled = i.Sampled || node.Sampled
	if i.Blocks >= 0 && node.Blocks >= 0 {
		i.Blocks += node.Blocks
	} else {
		i.Blocks = -1
	}
}

func (b *Backend) nodeInfo(ctx context.Context, node *goredis.Client) (info Info, err error) {
	for range 5 {
		begun := time.Now()
		if err := node.Ping(ctx).Err(); err != nil && !forbidden(err) {
			return info, err
		}
		if took := time.Since(begun); info.RoundTrip == 0 || took < info.RoundTrip {
			info.RoundTrip = took
		}
	}
	text, err := node.Info(ctx).Result()
	if err != nil && !forbidden(err) {
		return info, err
	}
	info.read(text)
	info.Blocks, info.Sampled, err = b.blocks(ctx, node)
	if forbidden(err) {
		info.Blocks, err = -1, nil
	}
	return info, err
}

// forbidden tells whether the user may not do something.
func forbidden(err error) bool { return goredis.HasErrorPrefix(err, "NOPERM") }

// read takes in what INFO answers.
func (i *Info) read(text string) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
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

// blocks counts the pool's blocks on a node, or estimates them.
func (b *Backend) blocks(ctx context.Context, node *goredis.Client) (n int64, sampled bool, err error) {
	seen, ours := int64(0), int64(0)
	var members int64
	err = b.scan(ctx, node, "", func(found []string) (bool, error) {
		seen += int64(len(found))
		mine := b.onlyOurs(found)
		ours += int64(len(mine))
		if b.cfg.Layout == LayoutSet {
			for _, name := range mine {
				count, err := node.SCard(ctx, name).Result()
				if err != nil {
					return false, err
				}
				members += count
			}
		}
		sampled = seen >= sampleKeys
		return !sampled, nil
	})
	if b.cfg.Layout == LayoutSet {
		ours = members
	}
	if err != nil || !sampled {
		return ours, false, err
	}
	size, err := node.DBSize(ctx).Result()
	if err != nil || size <= seen {
		return ours, false, err
	}
	return int64(float64(ours) * float64(size) / float64(seen)), true, nil
}
