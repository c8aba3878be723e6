package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/router/events"
)

// ErrNotEmpty refuses to load into a fleet that has holders.
var ErrNotEmpty = errors.New("the fleet has holders")

// Load makes the holders of a snapshot with their blocks. They are stale until SetStale(false); Get returns them. It reads
// the section that Snapshot.Write has written to its end. The fleet of the snapshot had the same BlockSize and FirstBytes.
// Load fails with ErrNotEmpty, ErrFull, ErrTooMany, ErrGroup or the error of r, and then has loaded nothing.
func (f *Fleet) Load(r *parts.Reader) error {
	l := loader{fleet: f, core: newCore(&f.cfg), in: r}
	for _, read := range []func(){l.readHolders, l.readTiers, l.readSets, l.readRecords, l.finish} {
		if read(); l.failed() {
			return cmp.Or(l.err, r.Err())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.holders) > 0 {
		return ErrNotEmpty
	}
	f.core = l.core
	for _, h := range l.holders {
		f.list(h)
	}
	return nil
}

// loader makes a core that no one else has yet.
type loader struct {
	fleet   *Fleet
	core    *core
	in      *parts.Reader
	holders []*Holder
	tiers   []uint32 // taken until all is read: then only those that holders use stay
	sets    []*holderSet
	err     error // of a snapshot that does not suit the fleet. One that is wrong is an error of in
}

func (l *loader) failed() bool { return l.err != nil || l.in.Err() != nil }

func (l *loader) failFull() {
	l.err = fmt.Errorf("%w: it needs more than the %d bytes of max_bytes", ErrFull, l.fleet.cfg.MaxBytes)
}

func (l *loader) readHolders() {
	in := l.in
	n := in.Uvarint(math.MaxUint32)
	if limit := l.fleet.cfg.MaxHolders; n > uint64(limit) {
		l.err = fmt.Errorf("%w: %d, at most %d", ErrTooMany, n, limit)
		return
	}
	seen := map[ID]bool{}
	for range n {
		var saved savedHolder
		in.JSON(&saved)
		if seen[saved.ID] || !saved.isPossible() {
			in.Fail("holder %.40q, rank %d, is wrong, or there twice", saved.Engine, saved.Rank)
		}
		if l.failed() {
			return
		}
		seen[saved.ID] = true
		h := &Holder{fleet: l.fleet, id: saved.ID, stale: true}
		h.number = l.core.numbers.alloc(h, l.core.groups.none()) // the next number, as the core has no other holders
		l.holders = append(l.holders, h)
		if l.fleet.cfg.Groups == nil && len(saved.Groups) > 0 {
			l.set(l.core.setSpecs(h, saved.Groups))
		}
	}
}

// isPossible reports whether a fleet can have saved such a holder.
func (h *savedHolder) isPossible() bool {
	isTooLarge := func(g groupSpec) bool {
		return g.BlockSize < 0 || g.BlockSize > maxBlockSize || g.Window < 0 || g.Window > math.MaxInt32 || len(g.Kind) > events.MaxName
	}
	return h.Rank >= 0 && h.Rank <= MaxRank && len(h.Engine) <= events.MaxName && len(h.Groups) <= maxGroups &&
		!slices.ContainsFunc(h.Groups, isTooLarge)
}

// set sets the error.
func (l *loader) set(err error) {
	if l.err = err; errors.Is(err, errNoMemory) {
		l.failFull()
	}
}

func (l *loader) readTiers() {
	for i := range int(l.in.Uvarint(maxGroupTiers)) {
		var at events.GroupTier
		if l.in.JSON(&at); l.failed() {
			return
		}
		number, err := l.core.tiers.take(at.Group, &at.Tier)
		if err != nil || int(number) != i {
			l.in.Fail("group and tier %d are wrong", i)
		}
		l.tiers = append(l.tiers, number)
	}
}

func (l *loader) readSets() {
	for range l.in.Uvarint(math.MaxUint32) {
		pairs := l.readPairs()
		if l.failed() {
			return
		}
		sets := &l.core.sets
		hash := sets.hash(pairs)
		set, size := sets.find(pairs, hash), int64(0)
		if set == nil {
			size = sizeOfSet(len(pairs)) + internBytes + setChunkLen*16
		}
		// The list of the sets takes up to 16 bytes each, which are garbage later. Several may be equal.
		if !l.core.fits(size + 16*int64(len(l.sets)+1)) {
			l.failFull()
			return
		}
		if set == nil {
			set = sets.add(pairs, hash)
		}
		l.sets = append(l.sets, set)
	}
}

// readPairs reads a set. The result is valid until the next call.
func (l *loader) readPairs() []pair {
	in, pairs := l.in, l.core.pairs[:0]
	for range in.Uvarint(math.MaxUint32) {
		p := pair{groupTier: uint32(in.Uvarint(math.MaxUint32)), word: uint32(in.Uvarint(math.MaxUint32)), bits: in.Fixed64()}
		if l.failed() || !l.isValid(p, pairs) {
			in.Fail("set %d is wrong", len(l.sets))
			return nil
		}
		pairs = append(pairs, p)
	}
	if len(pairs) == 0 {
		in.Fail("set %d is empty", len(l.sets))
	}
	l.core.pairs = pairs
	return pairs
}

// isValid reports whether a pair may come after others.
func (l *loader) isValid(p pair, before []pair) bool {
	n := uint64(len(l.holders))
	if p.bits == 0 || int(p.groupTier) >= l.core.tiers.Len() || uint64(p.word)*64+uint64(bits.Len64(p.bits)) > n {
		return false
	}
	if len(before) == 0 {
		return true
	}
	last := before[len(before)-1]
	return last.groupTier < p.groupTier || last.groupTier == p.groupTier && last.word < p.word
}

func (l *loader) readRecords() {
	for l.in.More() {
		n, number := l.in.Uvarint(math.MaxUint32), l.in.Uvarint(math.MaxUint32)
		if number >= uint64(len(l.sets)) {
			l.in.Fail("a block of set %d, there are %d", number, len(l.sets))
			return
		}
		for range n {
			if l.addRecord(l.in.Fixed64(), l.sets[number]); l.failed() {
				return
			}
		}
	}
}

func (l *loader) addRecord(key uint64, set *holderSet) {
	c := l.core
	if l.failed() {
		return
	}
	if _, ok := c.table.find(&c.log, key); ok {
		l.in.Fail("block %016x is there twice", key)
		return
	}
	if growth := c.log.growth() + c.table.growth(key); growth > 0 && !c.fits(growth) {
		l.failFull()
		return
	}
	c.table.insert(key, c.log.append(key, set.num))
	c.sets.entry(set.num).refs++
}

// finish counts the entries of the holders, and frees sets without blocks.
func (l *loader) finish() {
	c := l.core
	for num := uint32(1); num < c.sets.next; num++ {
		e := c.sets.entry(num)
		if e.set == nil {
			continue
		}
		if e.refs == 0 {
			c.sets.freeUnused(num)
			continue
		}
		for i := range e.set.pairs {
			l.count(&e.set.pairs[i], int(e.refs))
		}
	}
	c.tiers.release(l.tiers)
	for _, h := range l.holders {
		if h.entries > l.fleet.cfg.MaxBlocks {
			l.err = fmt.Errorf("%w: over %d blocks of one holder", ErrFull, l.fleet.cfg.MaxBlocks)
		}
	}
}

// count adds the entries of a pair with a number of blocks to its holders.
func (l *loader) count(p *pair, blocks int) {
	for holders := p.bits; holders != 0; holders &= holders - 1 {
		h := l.holders[p.word*64+uint32(bits.TrailingZeros64(holders))]
		h.entries += blocks
		l.core.numbers.use(h.number)
		at := l.core.tiers.At(p.groupTier)
		if l.failed() {
			return
		}
		l.set(l.core.learn(h, &events.Blocks{Group: at.Group}))
		if _, err := h.findOrAddTier(&l.core.tiers, at.Group, &at.Tier); err != nil {
			l.in.Fail("%v", err)
		}
	}
}
