package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// Holder is one engine, or one data-parallel rank of it. It is an events.Holder, so an events.Follower
// can fill it. Safe for concurrent use.
type Holder struct {
	fleet *Fleet
	id    ID

	// Fleet.mu guards these.
	index      uint32 // in Fleet.byName
	number     uint32
	stale      bool
	closed     bool
	groupTiers []uint32 // where it has stored, since the last Clear
	entries    int      // blocks by group and tier
	predicted  epochCounts
	next       uint32 // position behind the last block that was changed: where the next one of its chain may be
}

var _ events.Holder = (*Holder)(nil)

// maxStep is how many blocks are changed in one hold of the lock: some 25 µs.
const maxStep = 256

// ID returns the name.
func (h *Holder) ID() ID { return h.id }

// Len returns the number of entries, stale or not: blocks in all groups and tiers, and predicted ones.
func (h *Holder) Len() int {
	f := h.fleet
	f.mu.RLock()
	defer f.mu.RUnlock()
	return h.count(f.core.oldestAt(f.epoch(f.cfg.now())))
}

// count returns the number of entries, if predictions of epochs before oldest do not count.
func (h *Holder) count(oldest uint32) int {
	if h.closed {
		return 0
	}
	return h.entries + h.predicted.count(max(oldest, h.fleet.core.numbers.minimum(h.number)))
}

// Store implements events.Holder. It fails with ErrFull, ErrGroup, events.ErrTiers, ErrHashLen or ErrClosed, having stored
// some of the blocks. Blocks whose locality is REMOTE are another engine's and are ignored. Blocks without a group are
// in group 0. The first blocks of a group tell its kind and block size, unless Config.Groups does. held may be nil.
func (h *Holder) Store(b *events.Blocks, held []bool) error {
	if b.Hashes.Len() == 0 || b.Tier.Locality == "REMOTE" {
		return nil
	}
	if err := checkHashLen(b.Hashes.HashLen()); err != nil {
		return err
	}
	return h.fleet.inSteps(b.Hashes, true, func(from int, part coordinator.Hashes) (int, error) {
		ch, err := h.beginStore(b)
		if err != nil {
			return 0, err
		}
		return h.store(part, ch, held[min(from, len(held)):])
	})
}

// inSteps calls do with the lock, for at most maxStep hashes at a time and the index of the first. do returns how many it
// has changed. If memory is short, garbage is collected and do called again for the rest. isEvent says that the change is
// that of an event, for which all predictions are dropped if need be.
func (f *Fleet) inSteps(hashes coordinator.Hashes, isEvent bool, do func(from int, part coordinator.Hashes) (int, error)) error {
	n, blob, collected := hashes.HashLen(), hashes.Bytes(), false
	for from := 0; from < hashes.Len(); {
		end := min(from+maxStep, hashes.Len())
		f.mu.Lock()
		done, err := do(from, coordinator.NewHashes(blob[from*n:end*n], n))
		hasWork := f.core.hasWork(false)
		f.mu.Unlock()
		collected = collected && done == 0
		from += done
		switch {
		case errors.Is(err, errNoMemory) && (!collected || f.dropPredictions(isEvent)):
			f.collect()
			collected = true
		case errors.Is(err, errNoMemory):
			return fmt.Errorf("%w: the %d bytes of max_bytes are used", ErrFull, f.cfg.MaxBytes)
		case err != nil:
			return err
		case hasWork:
			f.work()
		}
	}
	return nil
}

// beginStore checks blocks to be stored, and returns their change.
func (h *Holder) beginStore(b *events.Blocks) (*change, error) {
	f, c := h.fleet, h.fleet.core
	if h.closed {
		return nil, ErrClosed
	}
	if err := c.groups.learn(b); err != nil {
		return nil, err
	}
	number, err := h.findOrAddTier(&c.tiers, b.Group, &b.Tier)
	if err != nil {
		return nil, err
	}
	c.numbers.list[h.number].isUsed = true
	return &change{action: actionStore, number: h.number, groupTier: number, oldest: c.expire(f.epoch(f.cfg.now()))}, nil
}

// findOrAddTier returns the number of a group and tier where the holder has stored. It fails with events.ErrTiers.
func (h *Holder) findOrAddTier(t *tierTable, group int, tier *events.Tier) (uint32, error) {
	if number, ok := t.Find(group, tier); ok && slices.Contains(h.groupTiers, number) {
		return number, nil
	}
	if len(h.groupTiers) == events.MaxGroupTiers {
		return 0, fmt.Errorf("fleet: %w: over %d of one holder", events.ErrTiers, events.MaxGroupTiers)
	}
	number, err := t.findOrAdd(group, tier)
	if err == nil {
		h.groupTiers = append(h.groupTiers, number)
	}
	return number, err
}

// store changes blocks by actionStore or actionPredict, until an entry is one too many. It returns how many it has
// changed. It fails with ErrFull or errNoMemory.
func (h *Holder) store(hashes coordinator.Hashes, ch *change, held []bool) (int, error) {
	var keys [maxStep]uint64
	h.readKeys(keys[:], hashes)
	c, limit := h.fleet.core, h.fleet.cfg.MaxBlocks
	for i := range hashes.Len() {
		if i%readAhead == 0 && !c.isAt(keys[i], h.next) {
			c.table.readAhead(keys[i:min(i+readAhead, hashes.Len())])
		}
		pos, ok := c.find(keys[i], h.next)
		if h.entries+h.predicted.total >= limit && h.count(ch.oldest) >= limit && !(ok && h.holds(pos, ch)) && !h.dropOldest(ch) {
			return i, fmt.Errorf("%w: over %d blocks of one holder", ErrFull, limit)
		}
		var out outcome
		var err error
		if ok {
			out, err = c.change(pos, ch)
		} else {
			pos, out, err = c.add(keys[i], ch)
		}
		if err != nil {
			return i, err
		}
		h.next = pos + 1
		h.account(&out, ch)
		if i < len(held) {
			held[i] = out.held
		}
	}
	return hashes.Len(), nil
}

// readAhead is for how many blocks memory is read at once: about as many reads as a core keeps waiting for.
const readAhead = 32

func (h *Holder) readKeys(keys []uint64, hashes coordinator.Hashes) {
	n, at, blob := hashes.HashLen(), h.fleet.cfg.shortAt(hashes.HashLen()), hashes.Bytes()
	for i := range hashes.Len() {
		keys[i] = key(blob[i*n:], at)
	}
}

// holds reports whether a change of the record at a position adds no entry.
func (h *Holder) holds(pos uint32, ch *change) bool {
	c := h.fleet.core
	s, i := c.log.at(pos)
	_, out := c.changed(c.sets.at(s.sets[i]), ch)
	return !out.added || out.epoch >= ch.oldest
}

// account counts the entries of an outcome.
func (h *Holder) account(out *outcome, ch *change) {
	h.entries -= int(out.removed)
	if out.epoch != 0 {
		h.predicted.remove(out.epoch)
	}
	switch {
	case !out.added:
	case ch.action == actionPredict:
		h.predicted.add(ch.groupTier &^ predictedIn)
	default:
		h.entries++
	}
}

// dropOldest drops the predictions of the oldest epoch, for those of events also of the current one. It returns false if
// there are none.
func (h *Holder) dropOldest(ch *change) bool {
	f, c := h.fleet, h.fleet.core
	now := f.epoch(f.cfg.now())
	epoch, ok := h.predicted.first(max(ch.oldest, c.numbers.minimum(h.number)))
	if !ok || epoch > now || epoch == now && ch.action == actionPredict {
		return false
	}
	c.numbers.setMinimum(h.number, epoch+1)
	return true
}

// Remove implements events.Holder. It removes what is predicted, too: the engine may have lost these blocks. A group, or
// a field of a tier, that is absent on either side matches any. It fails with ErrHashLen or ErrClosed, and, once memory is used up,
// may fail with ErrFull.
func (h *Holder) Remove(b *events.Blocks) error {
	if b.Hashes.Len() == 0 {
		return nil
	}
	if err := checkHashLen(b.Hashes.HashLen()); err != nil {
		return err
	}
	var groupTiers []uint32
	return h.fleet.inSteps(b.Hashes, true, func(_ int, part coordinator.Hashes) (int, error) {
		if h.closed {
			return 0, ErrClosed
		}
		groupTiers = h.matching(groupTiers[:0], b)
		f := h.fleet
		ch := &change{action: actionRemove, number: h.number, groupTiers: groupTiers, oldest: f.core.expire(f.epoch(f.cfg.now()))}
		return h.removeStep(part, ch)
	})
}

// matching appends the groups and tiers that a removal may mean.
func (h *Holder) matching(dst []uint32, b *events.Blocks) []uint32 {
	for _, number := range h.groupTiers {
		if h.fleet.core.tiers.At(number).Matches(b.Group, &b.Tier) {
			dst = append(dst, number)
		}
	}
	return dst
}

func (h *Holder) removeStep(hashes coordinator.Hashes, ch *change) (int, error) {
	var keys [maxStep]uint64
	h.readKeys(keys[:], hashes)
	c := h.fleet.core
	for i := range hashes.Len() {
		if i%readAhead == 0 && !c.isAt(keys[i], h.next) {
			c.table.readAhead(keys[i:min(i+readAhead, hashes.Len())])
		}
		pos, ok := c.find(keys[i], h.next)
		if !ok {
			continue
		}
		out, err := c.change(pos, ch)
		if err != nil {
			return i, err
		}
		h.next = pos + 1
		h.account(&out, ch)
	}
	return hashes.Len(), nil
}

// Predict says that the holder will soon have the blocks of a prompt, as a request with it was sent there. They
// count in all groups, in the medium Predicted, until PredictTTL has passed, Clear is called, or an event says that they
// were removed. Time is counted in quarters of PredictTTL since New: a block counts in the quarter in which it was
// predicted last, and in the three that follow. It fails with ErrFull, ErrHashLen or ErrClosed; to avoid ErrFull the
// predictions of the oldest quarter are dropped. What events say goes first: if they need the memory, all predictions are
// dropped, and no block can be predicted until the next quarter. hashes is only borrowed.
func (h *Holder) Predict(hashes coordinator.Hashes) error {
	if hashes.Len() == 0 {
		return nil
	}
	if err := checkHashLen(hashes.HashLen()); err != nil {
		return err
	}
	f := h.fleet
	return f.inSteps(hashes, false, func(_ int, part coordinator.Hashes) (int, error) {
		if h.closed {
			return 0, ErrClosed
		}
		c, epoch := f.core, f.epoch(f.cfg.now())
		oldest := c.expire(epoch)
		if epoch < max(oldest, c.numbers.minimum(h.number)) {
			return 0, fmt.Errorf("%w: events need the memory of predictions", ErrFull)
		}
		c.firstPredicted, c.lastPredicted = min(cmp.Or(c.firstPredicted, epoch), epoch), max(c.lastPredicted, epoch)
		c.numbers.list[h.number].isUsed = true
		ch := &change{action: actionPredict, number: h.number, groupTier: predictedIn | epoch, oldest: oldest}
		return h.store(part, ch, nil)
	})
}

// Clear implements events.Holder. It removes predicted blocks, too. Queries find nothing of this holder when it returns;
// the memory is freed step by step, by it and by later calls.
func (h *Holder) Clear() {
	h.fleet.mu.Lock()
	h.clear()
	hasWork := h.fleet.core.hasWork(false)
	h.fleet.mu.Unlock()
	if hasWork {
		h.fleet.workSteps(stepsOfClear, false)
	}
}

func (h *Holder) clear() {
	c := h.fleet.core
	if h.closed || !c.numbers.list[h.number].isUsed {
		return
	}
	c.numbers.retire(h.number)
	h.number = c.numbers.alloc(h)
	h.groupTiers, h.entries, h.predicted = h.groupTiers[:0], 0, epochCounts{}
}

// IsStale reports whether the holder counts for nothing but what is predicted.
func (h *Holder) IsStale() bool {
	h.fleet.mu.RLock()
	defer h.fleet.mu.RUnlock()
	return h.stale
}

// SetStale implements events.Holder.
func (h *Holder) SetStale(stale bool) {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	if h.closed || h.stale == stale {
		return
	}
	h.stale = stale
	if numbers := &h.fleet.core.numbers; stale {
		numbers.fresh.clear(h.number)
	} else {
		numbers.setFresh(h.number)
	}
}

// Close removes the holder and all that it holds from the fleet. Its other methods then do nothing, or fail with
// ErrClosed.
func (h *Holder) Close() {
	h.fleet.mu.Lock()
	if h.closed {
		h.fleet.mu.Unlock()
		return
	}
	h.fleet.remove(h)
	h.closed, h.entries, h.predicted = true, 0, epochCounts{}
	hasWork := h.fleet.core.hasWork(false)
	h.fleet.mu.Unlock()
	if hasWork {
		h.fleet.workSteps(stepsOfClear, false)
	}
}
