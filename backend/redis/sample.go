package redis

import (
	"context"
	"encoding/hex"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// Sample is some of the blocks in a store, of all pools.
type Sample struct {
	// Keys are keys of LayoutKeys.
	Keys []string
	// Sets has one key for each set of LayoutSet: the set's name, "@" and the hash of one of
	// its blocks. Without permission for SRANDMEMBER it is the name alone.
	Sets []string
	// Complete is true if Keys and Sets have all keys and sets.
	Complete bool
}

// Limits of Sample for one node: it ends after maxSampleScans calls of SCAN, or when it has
// maxSampleKeys keys. It asks maxSampleSets sets for a member. It leaves out keys of more than
// maxSampleKeyBytes bytes, which are of other programs.
const (
	maxSampleScans = 20
	maxSampleKeys  = 2000
	maxSampleSets  = 64

	maxSampleKeyBytes = 8 << 10
)

// Sample reads some of the keys, in a cluster of all primaries. An operator compares them
// with the keys that the configuration expects. It needs SCAN, and SRANDMEMBER for sets.
func (b *Backend) Sample(ctx context.Context) (Sample, error) {
	var mu sync.Mutex
	s := Sample{Complete: true}
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.forEachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			ofNode, err := b.sampleNode(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			s.Keys, s.Sets = append(s.Keys, ofNode.Keys...), append(s.Sets, ofNode.Sets...)
			s.Complete = s.Complete && ofNode.Complete
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
	var sets []string
	scans := 0
	err := b.scan(ctx, node, "*"+rankPart+"*@group:*", func(found []string) (bool, error) {
		for _, key := range found {
			switch cut := strings.LastIndexByte(key, '@'); {
			case cut < 0: // the server ignores the pattern
			case len(key) > maxSampleKeyBytes:
			case strings.HasPrefix(key[cut:], "@group:"):
				if len(sets) <= maxSampleSets { // one more shows that there are more
					sets = append(sets, key)
				}
			case len(s.Keys) < maxSampleKeys:
				s.Keys = append(s.Keys, key)
			}
		}
		scans++
		s.Complete = scans < maxSampleScans && len(s.Keys) < maxSampleKeys
		return s.Complete, nil
	})
	if err != nil {
		return s, err
	}
	if len(sets) > maxSampleSets {
		sets, s.Complete = sets[:maxSampleSets], false
	}
	for _, name := range sets {
		members, err := node.SRandMemberN(ctx, name, 1).Result()
		switch {
		case isNoPermission(err):
			s.Sets = append(s.Sets, name)
		case err == nil && len(members) > 0:
			s.Sets = append(s.Sets, name+"@"+hex.EncodeToString([]byte(members[0])))
		case err != nil && !goredis.HasErrorPrefix(err, "WRONGTYPE"):
			return s, err
		}
	}
	return s, nil
}
