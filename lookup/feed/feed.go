// Package feed fills the memory index of a pool with the blocks that one engine holds, by its KV
// events: the pool is that engine.
//
// A [Holder] keeps all blocks of the engine in an [events.Set]. Those in one of the configured media
// are also in the index. While the source is stale the index is empty, so that lookups answer 0. When
// it is no longer stale the index is filled again from the set. The index is bounded and may evict
// blocks: lookups then find less than the engine holds, never more.
package feed

import (
	"errors"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// remote is the locality of blocks that another engine holds.
const remote = "REMOTE"

// Config configures a Holder.
type Config struct {
	// Source is the name of the source, for the refusals that clients get.
	Source string
	// Media are those whose blocks are indexed, such as GPU; none: DefaultMedia. Blocks without a
	// medium are always indexed, those with the locality REMOTE never.
	Media []string
	// MaxBlocks bounds the blocks of all media; 0: events.DefaultMaxBlocks.
	MaxBlocks int
}

// DefaultMedia are the media that are indexed if none are configured.
var DefaultMedia = []string{"GPU"}

// Holder is an events.Holder that fills the pool of a service. Its methods are called by one goroutine at
// a time; lookups of the service go on meanwhile.
type Holder struct {
	cfg     Config
	feed    *lookup.Feed
	groups  []int // the pool's group for that of an event, which is a position in Pool.Groups; -1: it is in no lookup
	hashLen int   // of the pool; 0: that of the first block that the set and the index get
	set     *events.Set
	stale   bool
	tiers   []events.Tier // that are indexed, of blocks that were stored since the last Clear
	evicted []byte        // hashes, joined; reused by evict
	pool    coordinator.Pool
}

var _ events.Holder = (*Holder)(nil)

// New makes the pool of a service one that is filled by events, and empties it. It fails as
// lookup.Service.BeginFeed does.
func New(service *lookup.Service, cfg Config) (*Holder, error) {
	if len(cfg.Media) == 0 {
		cfg.Media = DefaultMedia
	}
	f, err := service.BeginFeed(cfg.Source)
	if err != nil {
		return nil, err
	}
	rules := service.Coordinator()
	groups := make([]int, len(rules.Pool().Groups))
	for position := range groups {
		groups[position] = rules.StoreGroup(position)
	}
	return &Holder{
		cfg: cfg, feed: f, groups: groups, hashLen: service.Pool().HashLen,
		set: events.NewSet(cfg.MaxBlocks), stale: true, pool: rules.Pool(),
	}, nil
}

// Close empties the pool, which clients may change again. No other method is called during or after it.
func (h *Holder) Close() { h.feed.End() }

// indexes reports whether blocks of a tier are in the index.
func (h *Holder) indexes(tier events.Tier) bool {
	return tier.Locality != remote && (tier.Medium == "" || slices.Contains(h.cfg.Media, tier.Medium))
}

// positionOf returns the position in Pool.Groups of the group of an event.
func positionOf(group int) int {
	if group == events.NoGroup {
		return 0
	}
	return group
}

// storeIndexed stores blocks in the index. Those of a group that no lookup reads are left out.
func (h *Holder) storeIndexed(b *events.Blocks) error {
	if g := h.groups[positionOf(b.Group)]; g >= 0 {
		return h.feed.Store(g, b.Parent, b.Hashes)
	}
	return nil
}

// Store implements events.Holder. It fails with ErrGroup, ErrHashLen, ErrKind, ErrBlockSize, ErrTiers,
// events.ErrFull, or as lookup.Feed.Store does.
func (h *Holder) Store(b *events.Blocks, held []bool) error {
	indexed := h.indexes(b.Tier)
	if indexed {
		if err := h.check(b); err != nil {
			return err
		}
	}
	if err := h.set.Store(b, held); err != nil {
		return err
	}
	if h.stale || !indexed {
		return nil
	}
	return h.storeIndexed(b)
}

// Remove implements events.Holder.
func (h *Holder) Remove(b *events.Blocks) error {
	if err := h.set.Remove(b); err != nil || h.stale {
		return err
	}
	// A group that is absent, in the event or of the stored block, matches any: see events.Set.
	if g := b.Group; g != events.NoGroup && g < len(h.groups) {
		if err := h.evict(g, b.Hashes); err != nil || g == 0 {
			return err
		}
		return h.evict(0, b.Hashes)
	}
	for g := range h.groups {
		if err := h.evict(g, b.Hashes); err != nil {
			return err
		}
	}
	return nil
}

// evict evicts those of the hashes from the group at a position that the set does not hold any more.
func (h *Holder) evict(position int, hashes netproto.Hashes) error {
	group := h.groups[position]
	if group < 0 {
		return nil
	}
	h.evicted = h.evicted[:0]
	for _, hash := range hashes.All() {
		if !h.holds(position, hash) {
			h.evicted = append(h.evicted, hash...)
		}
	}
	if len(h.evicted) == 0 {
		return nil
	}
	err := h.feed.Evict(group, netproto.NewHashes(h.evicted, hashes.HashLen()))
	if errors.Is(err, index.ErrOtherHashLen) {
		return nil // none of them was stored
	}
	return err
}

// holds reports whether the set holds a block of the group at a position, in a tier that is indexed.
func (h *Holder) holds(position int, hash []byte) bool {
	for _, tier := range h.tiers {
		if h.set.Contains(position, tier, hash) || position == 0 && h.set.Contains(events.NoGroup, tier, hash) {
			return true
		}
	}
	return false
}

// Len returns the number of blocks in all groups and tiers, stale or not.
func (h *Holder) Len() int { return h.set.Len() }

// Clear implements events.Holder.
func (h *Holder) Clear() {
	h.set.Clear()
	h.tiers = h.tiers[:0]
	if !h.stale {
		h.feed.Reset()
	}
}

// SetStale implements events.Holder. What the engine holds is in the index when it returns, unless the
// source is stale.
func (h *Holder) SetStale(stale bool) {
	h.set.SetStale(stale)
	if stale == h.stale {
		return
	}
	if h.stale = stale; stale {
		h.feed.Reset()
		return
	}
	h.set.Each(func(b *events.Blocks) bool {
		// It does not fail: Store has checked the blocks, and an empty index takes hashes of any length.
		return !h.indexes(b.Tier) || h.storeIndexed(b) == nil
	})
}
