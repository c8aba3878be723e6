package lookup

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/fielderror"
)

// maxGroupRanks bounds groups times ranks: each class of coverage holds a bit for
// every rank.
const maxGroupRanks = 1 << 16

// Memory is the memory index of a Service: lookups and changes of it may arrive in pieces. Safe for
// concurrent use.
type Memory struct {
	rules
	index     *index.Index
	ranks     *groupRanks
	required  [][]int // by group: the places of its ranks, in their order
	groupSets []groupSet
	queries   sync.Pool // of *Query
	counters  *counters
}

// newMemory returns an empty index.
func newMemory(r rules, ranks *groupRanks, counters *counters, cfg index.Config) (*Memory, error) {
	if ranks.count() > maxGroupRanks {
		return nil, fielderror.New([]string{"groups"}, "%w: a pool of %d ranks (of all groups); at most %d are served over memory",
			ErrUnsupported, ranks.count(), maxGroupRanks)
	}
	m := &Memory{
		rules: r, ranks: ranks, counters: counters,
		required: ranks.required(r.coord), groupSets: newGroupSets(r.coord),
	}
	cfg.Places, cfg.Groups, cfg.HashLen = ranks.count(), m.required, r.pool.HashLen
	var err error
	if m.index, err = index.New(cfg); err != nil {
		return nil, fmt.Errorf("memory backend: %w", err)
	}
	return m, nil
}

// Limit sets the byte bound of the index, or the least one that its entries need if that is more,
// and returns it.
func (m *Memory) Limit(maxBytes int64) int64 { return m.index.Limit(maxBytes) }

// EvictionAge returns for how long, at least, what was evicted last to make room was not used, and
// whether anything was evicted for that since the last Reset. It is exact to a 32nd of the time
// since the first call if it is called about once a second, as a server does. A nil Memory returns
// false.
func (m *Memory) EvictionAge(now time.Time) (age time.Duration, evicts bool) {
	if m == nil {
		return 0, false
	}
	return m.index.EvictionAge(now)
}

// numBlocks is NumBlocks over the memory index. stride is the least of the groups of full
// attention, math.MaxInt without one.
func (m *Memory) numBlocks(stride int) int64 {
	if stride == math.MaxInt {
		return 0
	}
	entries := m.index.Stats().MaxEntries
	if _, evicts := m.index.EvictionAge(time.Now()); evicts {
		entries = m.index.Stats().Entries
	}
	return entries * int64(stride)
}
