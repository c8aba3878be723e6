package redis

import (
	"context"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// Sample is some of the blocks in a store, of all pools.
type Sample struct {
	Keys []string
	// Complete is true if Keys has all keys.
	Complete bool
}

// Limits of Sample for one node: it ends after maxSampleScans calls of SCAN, or when it has
// maxSampleKeys keys. It leaves out keys of more than maxSampleKeyBytes bytes, which are of other
// programs.
const (
	maxSampleScans = 20
	maxSampleKeys  = 2000

	maxSampleKeyBytes = 8 << 10
)

// Sample reads some of the keys, in a cluster of all primaries. An operator compares them
// with the keys that the configuration expects. It needs SCAN.
func (b *Backend) Sample(ctx context.Context) (Sample, error) {
	var mu sync.Mutex
	s := Sample{Complete: true}
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			ofNode, err := b.sampleNode(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			s.Keys, s.Complete = append(s.Keys, ofNode.Keys...), s.Complete && ofNode.Complete
			return err
		})
	})
	mu.Lock() // an abandoned call may still write
	defer mu.Unlock()
	if err != nil {
		return Sample{}, err
	}
	return s, nil
}

// sampleNode samples one primary.
func (b *Backend) sampleNode(ctx context.Context, node *goredis.Client) (Sample, error) {
	s := Sample{Complete: true}
	scans := 0
	err := b.scan(ctx, node, "*"+rankPart+"*@group:*", func(found []string) (bool, error) {
		for _, key := range found {
			switch cut := strings.LastIndexByte(key, '@'); {
			case cut < 0 || strings.HasPrefix(key[cut:], "@group:"): // no block's
			case len(key) <= maxSampleKeyBytes && len(s.Keys) < maxSampleKeys:
				s.Keys = append(s.Keys, key)
			}
		}
		scans++
		s.Complete = scans < maxSampleScans && len(s.Keys) < maxSampleKeys
		return s.Complete, nil
	})
	return s, err
}
