package fleet

import (
	"time"

	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/netproto"
)

// Holder is one engine, or one data-parallel rank of it. It is an events.Holder, so an events.Follower
// can fill it. Safe for concurrent use.
type Holder struct {
	fleet  *Fleet
	id     ID
	stale  bool
	blocks map[blockKey]time.Time
}

var _ events.Holder = (*Holder)(nil)

// ID returns the name.
func (h *Holder) ID() ID { return h.id }

// Len returns the number of entries, stale or not: blocks in all groups and tiers, and predicted ones.
func (h *Holder) Len() int {
	h.fleet.mu.RLock()
	defer h.fleet.mu.RUnlock()
	return len(h.blocks)
}

// Store implements events.Holder. It fails with ErrFull, ErrGroup, ErrHashLen or ErrClosed, having stored some
// of the blocks. Blocks whose locality is REMOTE are another engine's and are ignored.
func (h *Holder) Store(b *events.Blocks, held []bool) error {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	for i, hash := range b.Hashes.All() {
		k := blockKey{hash: h.fleet.cfg.short(hash), group: max(b.Group, 0), tier: b.Tier}
		_, held[i] = h.blocks[k]
		h.blocks[k] = time.Time{}
	}
	return nil
}

// Remove implements events.Holder.
func (h *Holder) Remove(b *events.Blocks) error {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	for _, hash := range b.Hashes.All() {
		for k := range h.blocks {
			if k.hash == h.fleet.cfg.short(hash) && !k.predicted && (b.Tier.Medium == "" || k.tier == b.Tier) && (b.Group < 0 || b.Group == k.group) {
				delete(h.blocks, k)
			}
		}
	}
	return nil
}

// Predict says that the holder will soon have the blocks of a prompt, as a request with it was sent there. They
// count in all groups, until PredictTTL has passed or Clear is called. It fails with ErrFull, ErrHashLen or
// ErrClosed. hashes is only borrowed.
func (h *Holder) Predict(hashes netproto.Hashes) error {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	for _, hash := range hashes.All() {
		h.blocks[blockKey{hash: h.fleet.cfg.short(hash), predicted: true}] = h.fleet.cfg.now().Add(h.fleet.cfg.PredictTTL)
	}
	return nil
}

// Clear implements events.Holder. It removes predicted blocks, too.
func (h *Holder) Clear() {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	clear(h.blocks)
}

// SetStale implements events.Holder.
func (h *Holder) SetStale(stale bool) {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	h.stale = stale
}

// Close removes the holder and all that it holds from the fleet.
func (h *Holder) Close() {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	if h.fleet.holders[h.id] == h {
		delete(h.fleet.holders, h.id)
	}
}
