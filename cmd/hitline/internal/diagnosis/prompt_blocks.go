package diagnosis

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// promptBlocks has, for each group, the blocks of a prompt prefix that are stored, on each
// rank of the group.
type promptBlocks [][]rankBlocks

// rankBlocks is the blocks of one group that are stored on one rank.
type rankBlocks struct {
	rank   coordinator.Rank
	stored []bool // by hash
	count  int    // of those that are true
}

// findBlocks asks the store for all hashes of the prefix of every group, also for those
// that a lookup would not ask for.
func (p promptPrefix) findBlocks(ctx context.Context, store *Store, rules *coordinator.Coordinator) (promptBlocks, error) {
	b := make(promptBlocks, rules.NumGroups())
	for g := range b {
		var err error
		if b[g], err = p.findGroupBlocks(ctx, store, rules, g); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (p promptPrefix) findGroupBlocks(ctx context.Context, store *Store, rules *coordinator.Coordinator, g int) ([]rankBlocks, error) {
	ranks := rules.Ranks(g)
	n := min(p.len(), max(1, maxGroupKeys/len(ranks)))
	var keys []string
	for _, r := range ranks {
		prefix := rules.KeyPrefix(g, r)
		for i := range n {
			keys = append(keys, prefix+hex.EncodeToString(p.hash(i)))
		}
	}
	if n == 0 {
		return nil, nil
	}
	answers, err := store.Exists(ctx, keys)
	if err != nil {
		return nil, err
	}
	if len(answers) != len(keys) {
		return nil, fmt.Errorf("%d answers for %d keys", len(answers), len(keys))
	}
	all := make([]rankBlocks, len(ranks))
	for r := range ranks {
		all[r] = rankBlocks{rank: ranks[r], stored: make([]bool, n)}
		for i := range n {
			if answers[r*n+i] == 1 {
				all[r].stored[i] = true
				all[r].count++
			}
		}
	}
	return all, nil
}

// anyStored reports whether a block of any group is stored.
func (b promptBlocks) anyStored() bool {
	return slices.ContainsFunc(b, func(group []rankBlocks) bool {
		return slices.ContainsFunc(group, func(on rankBlocks) bool { return on.count > 0 })
	})
}

// storedStride returns the stride in hashes at which blocks are stored, 0 if that cannot
// be determined. It needs three blocks at equal distances from the first hash on.
func (b rankBlocks) storedStride() int {
	first := slices.Index(b.stored, true)
	if b.count < 3 {
		return 0
	}
	stride := first + 1
	for i, stored := range b.stored {
		if stored && (i+1)%stride != 0 || !stored && (i+1)%stride == 0 && (i+1)/stride <= b.count {
			return 0
		}
	}
	return stride
}
