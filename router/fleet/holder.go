package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/router/events"
)

// Holder is one engine, or one data-parallel rank of it. It is an events.Holder, so an events.Follower
// can tell it what the engine has. Safe for concurrent use.
type Holder struct {
	fleet *Fleet
	id    ID

	// Fleet.mu guards these.
	index      uint32 // in Fleet.holders
	number     uint32
	stale      bool
	closed     bool
	groupTiers []uint32 // where it has stored, since the last Clear
	entries    int      // blocks by group and tier
	charged    int      // blocks that take as much memory as its part of the sets
	predicted  epochCounts
	dropped    int64 // entries that Fleet.shrink has dropped, ever
	// next are the positions behind the last blocks that were stored, predicted and removed, where the next ones of their
	// chains may be.
	next [actionRemove + 1]uint32
}

var _ events.Holder = (*Holder)(nil)

// maxStep is how many blocks are changed in one hold of the lock: some 25 µs.
const maxStep = 256

// Len implements events.Holder: predicted blocks are left out.
func (h *Holder) Len() int {
	h.fleet.mu.RLock()
	defer h.fleet.mu.RUnlock()
	return h.entries
}

// Dropped implements events.Holder.
func (h *Holder) Dropped() int64 {
	h.fleet.mu.RLock()
	defer h.fleet.mu.RUnlock()
	return h.dropped
}

// count returns the number of entries, if predictions of epochs before oldest do not count.
func (h *Holder) count(oldest uint32) int { return h.entries + h.predicted.count(oldest) }

// size returns how much the holder has of the memory, as a number of blocks that take as much.
func (h *Holder) size() int { return h.entries + h.charged }

// Store implements events.Holder. It fails with ErrFull, ErrGroup, events.ErrTiers, ErrHashLen or ErrClosed, having
// stored some of the blocks. Blocks whose locality is REMOTE are another engine's and are ignored. Blocks without a
// group are in group 0. The first blocks of a group since the holder was empty tell its kind and block size, unless
// Config.Groups does. held may be nil.
func (h *Holder) Store(b *events.Blocks, held []bool) error {
	if b.Tier.Locality == "REMOTE" {
		return nil
	}
	parent := b.Parent
	return h.inSteps(b.Hashes, held, b.Pause, func(ch *change) error {
		c := h.fleet.core
		if err := c.learn(h, b); err != nil {
			return err
		}
		c.numbers.use(h.number)
		if parent != nil {
			h.follow(parent)
			parent = nil
		}
		var err error
		ch.action, ch.room = actionStore, h.fleet.cfg.MaxBlocks-h.entries
		ch.groupTier, err = h.findOrAddTier(&c.tiers, b.Group, &b.Tier)
		return err
	})
}

// Remove implements events.Holder. It removes what is predicted, too: the engine may have lost these blocks. A group, or
// a field of a tier, that is absent on either side matches any. It fails with ErrHashLen or ErrClosed, and, once memory
// is used up, may fail with ErrFull.
func (h *Holder) Remove(b *events.Blocks) error {
	return h.inSteps(b.Hashes, nil, b.Pause, func(ch *change) error {
		ch.action, ch.groupTiers = actionRemove, h.appendMatching(ch.groupTiers, b)
		return nil
	})
}

// Predict says that the holder will soon have the blocks of a prompt, as a request with it was sent there. They
// count in all groups, in the medium Predicted, until PredictTTL has passed, Clear is called, or an event says that they
// were removed. Time is counted in quarters of PredictTTL since New: a block counts in the quarter in which it was
// predicted last, and in the three that follow. It fails with ErrFull, ErrHashLen or ErrClosed. If memory is used up,
// the predictions of the oldest quarter are dropped, and for events all if they are more than the largest holder has: then
// no block can be predicted until the next quarter. hashes is only borrowed. ctx is for cpushare.Pause.
func (h *Holder) Predict(ctx context.Context, hashes coordinator.Hashes) error {
	return h.inSteps(hashes, nil, func() func() { return cpushare.Pause(ctx) }, func(ch *change) error {
		c, epoch := h.fleet.core, h.fleet.epoch()
		if epoch < ch.oldest {
			return fmt.Errorf("%w: events need the memory of predictions", ErrFull)
		}
		c.firstPredicted, c.lastPredicted = min(cmp.Or(c.firstPredicted, epoch), epoch), max(c.lastPredicted, epoch)
		c.numbers.use(h.number)
		ch.action, ch.groupTier, ch.room = actionPredict, predictedIn|epoch, h.fleet.cfg.MaxBlocks-h.count(ch.oldest)
		return nil
	})
}

// inSteps changes the blocks of some hashes, at most maxStep in one hold of the lock. begin checks the change of a step
// and says what it does. If memory is short, garbage is collected and the rest tried again, then other blocks are dropped
// for it, with pauses as of events.Blocks.
func (h *Holder) inSteps(hashes coordinator.Hashes, held []bool, pause func() func(), begin func(*change) error) error {
	if err := checkHashLen(hashes.HashLen()); err != nil && hashes.Len() > 0 {
		return err
	}
	if pause == nil {
		pause = noPause
	}
	f, n, ch, collected := h.fleet, hashes.HashLen(), new(change), false
	for from := 0; ; { // without hashes, too: a group may be named
		rest := coordinator.NewHashes(hashes.Bytes()[from*n:], n)
		done, err := h.step(ch, rest, held[min(from, len(held)):], begin)
		collected = collected && done == 0
		from += done
		switch {
		case errors.Is(err, errNoMemory) && f.makeRoom(pause, !collected, ch.action == actionPredict):
			collected = true
		case errors.Is(err, errNoMemory):
			return fmt.Errorf("%w: the %d bytes of max_bytes are used", ErrFull, f.cfg.MaxBytes)
		case errors.Is(err, errNoRoom):
			return fmt.Errorf("%w: the holder has max_blocks, %d", ErrFull, f.cfg.MaxBlocks)
		case err != nil || from == hashes.Len():
			return err
		}
	}
}

// step changes the first blocks with the lock, and frees some memory. It returns how many blocks it has changed.
func (h *Holder) step(ch *change, hashes coordinator.Hashes, held []bool, begin func(*change) error) (int, error) {
	f := h.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.closed {
		return 0, ErrClosed
	}
	*ch = change{number: h.number, groupTiers: ch.groupTiers[:0], oldest: f.core.expire(f.epoch())}
	if err := begin(ch); err != nil {
		return 0, err
	}
	n := hashes.HashLen()
	blob := hashes.Bytes()[:n*min(maxStep, hashes.Len())]
	done, err := h.apply(ch, coordinator.NewHashes(blob, n), held)
	f.core.log.keepRoom(ch.appended, ch.made, ch.before)
	f.core.collectStep(false)
	return done, err
}

// apply changes blocks until one fails, and returns how many it has changed.
func (h *Holder) apply(ch *change, hashes coordinator.Hashes, held []bool) (int, error) {
	var keys [maxStep]uint64
	c, at, next := h.fleet.core, h.fleet.cfg.shortAt(hashes.HashLen()), &h.next[ch.action]
	for i, hash := range hashes.All() {
		keys[i] = key(hash, at)
	}
	for i := range hashes.Len() {
		if i%readAhead == 0 && !c.isAt(keys[i], *next) {
			c.table.readAhead(keys[i:min(i+readAhead, hashes.Len())])
		}
		pos, ok := c.find(keys[i], *next)
		if !ok && ch.action == actionRemove {
			continue
		}
		var out outcome
		var err error
		if ok {
			out, err = c.change(pos, ch)
		} else {
			pos, out, err = c.add(keys[i], *next, ch)
		}
		if err != nil {
			return i, err
		}
		*next = pos + 1
		h.account(&out, ch)
		if i < len(held) {
			held[i] = !out.added
		}
	}
	return hashes.Len(), nil
}

// follow makes the blocks that are stored next lie behind a known block in memory. It changes no answer.
func (h *Holder) follow(parent []byte) {
	if len(parent) < shortLen {
		return
	}
	c, next := h.fleet.core, &h.next[actionStore]
	if pos, ok := c.find(key(parent, h.fleet.cfg.shortAt(len(parent))), *next-1); ok {
		*next = pos + 1
	}
}

// readAhead is for how many blocks memory is read at once: about as many reads as a core keeps waiting for.
const readAhead = 32

// account counts the entries of an outcome.
func (h *Holder) account(out *outcome, ch *change) {
	h.entries -= int(out.removed)
	if out.grows() {
		ch.room--
	}
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

// findOrAddTier returns the number of a group and tier where the holder has stored. It fails with events.ErrTiers.
func (h *Holder) findOrAddTier(t *tierTable, group int, tier *events.Tier) (uint32, error) {
	number, known := t.Find(group, tier)
	switch {
	case known && slices.Contains(h.groupTiers, number):
		return number, nil
	case len(h.groupTiers) == events.MaxGroupTiers: // as in a Follower: a removal may compare each with each
		return 0, fmt.Errorf("%w: over %d of one holder", events.ErrTiers, events.MaxGroupTiers)
	case t.isOverMedia(h.groupTiers, tier.Medium):
		return 0, fmt.Errorf("%w: medium %.32q is one over %d of one holder",
			events.ErrTiers, tier.Medium, maxHolderMedia)
	}
	number, err := t.take(group, tier)
	if err != nil {
		return 0, err
	}
	h.groupTiers = append(h.groupTiers, number)
	return number, nil
}

// Clear implements events.Holder. It removes predicted blocks, too. Queries find nothing of this holder when it returns;
// the memory is freed step by step, by it and by later calls.
func (h *Holder) Clear() {
	h.fleet.locked(func() {
		if c := h.fleet.core; !h.closed && c.numbers.list[h.number].isUsed {
			c.numbers.retire(h.number)
			h.number = c.numbers.alloc(h, c.groups.none())
			c.tiers.release(h.groupTiers)
			h.groupTiers, h.entries, h.charged, h.predicted = h.groupTiers[:0], 0, 0, epochCounts{}
		}
	})
	h.fleet.collectSteps(noPause, stepsOfClear, false)
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
	h.fleet.locked(func() {
		if !h.closed {
			h.fleet.remove(h)
			h.closed, h.entries = true, 0
		}
	})
	h.fleet.collectSteps(noPause, stepsOfClear, false)
}
