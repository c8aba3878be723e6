package redis

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// Sample is some of what a store holds, of any pool.
type Sample struct {
	// Keys are blocks of LayoutKeys.
	Keys []string
	// Sets are sets of LayoutSet, each with one of its blocks, as the key that it would
	// have.
	Sets []string
	// Complete says that there are no others.
	Complete bool
}

// What Sample asks of a node at most: so many steps of a scan, and no more when it
// has enough.
const (
	sampleSteps, sampleEnough = 20, 2000
	sampleSets                = 64
)

// Sample looks at some of the keys, on all primaries of a cluster, which is for
// people to compare with the keys that they expect. It needs SCAN, and SRANDMEMBER for
// sets.
func (b *Backend) Sample(ctx context.Context) (Sample, error) {
	var mu sync.Mutex
	s := Sample{Complete: true}
	_, err := b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		return nil, b.eachPrimary(ctx, func(ctx context.Context, node *goredis.Client) error {
			one, err := b.sampleNode(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			s.Keys, s.Sets = append(s.Keys, one.Keys...), append(s.Sets, one.Sets...)
			s.Complete = s.Complete && one.Complete
			return err
		})
	})
	mu.Lock() // a call that is left behind may still write
	defer mu.Unlock()
	if err != nil {
		return Sample{}, err
	}
	return s, nil
}

func (b *Backend) sampleNode(ctx context.Context, node *goredis.Client) (Sample, error) {
	s := Sample{Complete: true}
	var sets []string
	steps := 0
	err := b.scan(ctx, node, "*"+rankPart+"*@group:*", func(found []string) (bool, error) {
		for _, key := range found {
			switch at := strings.LastIndexByte(key, '@'); {
			case at < 0: // the server does not heed the pattern
			case strings.HasPrefix(key[at:], "@group:"):
				sets = append(sets, key)
			default:
				s.Keys = append(s.Keys, key)
			}
		}
		steps++
		s.Complete = steps < sampleSteps && len(s.Keys) < sampleEnough
		return s.Complete, nil
	})
	if err != nil {
		return s, err
	}
	if len(sets) > sampleSets {
		sets, s.Complete = sets[:sampleSets], false
	}
	for _, name := range sets {
		member, err := node.SRandMember(ctx, name).Result()
		switch {
		case forbidden(err):
			s.Sets = append(s.Sets, name)
		case err == nil:
			s.Sets = append(s.Sets, name+"@"+hex.EncodeToString([]byte(member)))
		case !goredis.HasErrorPrefix(err, "WRONGTYPE") && !errors.Is(err, goredis.Nil):
			return s, err
		}
	}
	return s, nil
}
