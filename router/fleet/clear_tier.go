package fleet

import (
	"encoding/binary"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// ClearTier implements events.Holder. It looks at all blocks of the fleet, those of a bucket of the table in one hold
// of the lock, and removes as Remove does, with its errors.
func (h *Holder) ClearTier(b *events.Blocks, stopped func() error) error {
	removal := *b
	var blob []byte
	for sum, more := uint32(0), true; more; {
		blob, sum = h.appendKeysIn(blob[:0], sum, b)
		removal.Hashes = coordinator.NewHashes(blob, shortLen)
		if err := h.Remove(&removal); err != nil {
			return err
		}
		if err := stopped(); err != nil {
			return err
		}
		more = sum > 0
	}
	return nil
}

// appendKeysIn appends the keys of the bucket of a sum that the holder has in some groups and tiers, as hashes. It
// returns the first sum behind the bucket, 0 behind the last one. A key always has one sum, wherever its record is moved
// and however its bucket is split.
func (h *Holder) appendKeysIn(blob []byte, sum uint32, b *events.Blocks) ([]byte, uint32) {
	h.fleet.mu.RLock()
	defer h.fleet.mu.RUnlock()
	c, numbers := h.fleet.core, h.appendMatching(nil, b)
	if h.closed || len(numbers) == 0 {
		return blob, 0
	}
	word, bit := h.number/64, uint64(1)<<(h.number%64)
	isIn := func(p pair) bool { return p.word == word && p.bits&bit != 0 && slices.Contains(numbers, p.groupTier) }
	bucket := c.table.bucket(sum)
	for _, slot := range bucket.slots {
		if slot == 0 {
			continue
		}
		if s, i := c.log.at(uint32(slot) - 1); slices.ContainsFunc(c.sets.at(s.sets[i]).pairs, isIn) {
			blob = binary.LittleEndian.AppendUint64(blob, s.keys[i])
		}
	}
	return blob, (sum | (1<<(32-bucket.depth) - 1)) + 1
}

// appendMatching appends the numbers of the groups and tiers, of those of the holder, that a removal may mean.
func (h *Holder) appendMatching(numbers []uint32, b *events.Blocks) []uint32 {
	for _, number := range h.groupTiers {
		if h.fleet.core.tiers.At(number).Matches(b.Group, &b.Tier) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}
