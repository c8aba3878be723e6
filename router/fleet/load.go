package fleet

import (
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/hitline/hitline/router/events"
)

// maxEngine bounds the name of an instance in a snapshot, in bytes.
const maxEngine = 1 << 16

// Load makes the holders of a snapshot with their blocks. They are stale until SetStale(false); Get returns them.
// It reads no byte beyond the snapshot, so r may go on with other things. It fails with ErrNotEmpty, ErrSnapshot,
// ErrFull, ErrTooMany or as r does, and then has loaded nothing.
func (f *Fleet) Load(r io.Reader) error {
	if err := f.checkEmpty(); err != nil {
		return err
	}
	l := loader{fleet: f, core: newCore(&f.cfg), in: newContentReader(r)}
	for _, read := range []func(){l.readConfig, l.readHolders, l.readTiers, l.readSets, l.readRecords, l.in.end, l.finish} {
		if read(); l.in.err != nil {
			return l.in.err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.holders) > 0 {
		return ErrNotEmpty // of another goroutine
	}
	f.core = l.core
	for _, h := range l.holders {
		f.list(h)
	}
	return nil
}

func (f *Fleet) checkEmpty() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.holders) > 0 {
		return ErrNotEmpty
	}
	return nil
}

// loader fills a core that no one else has yet. An error is that of in.
type loader struct {
	fleet   *Fleet
	core    *core
	in      *contentReader
	holders []*Holder
	sets    []*holderSet
}

func (l *loader) failFull() {
	if l.in.err == nil {
		l.in.err = fmt.Errorf("%w: it needs more than the %d bytes of max_bytes", ErrFull, l.fleet.cfg.MaxBytes)
	}
}

func (l *loader) readConfig() {
	cfg, in := &l.fleet.cfg, l.in
	blockSize, firstBytes := in.int(math.MaxInt32), in.bool()
	if blockSize != cfg.BlockSize || firstBytes != cfg.FirstBytes {
		in.fail("it has blocks of %d tokens, first bytes %v; the fleet has %d, %v", blockSize, firstBytes, cfg.BlockSize, cfg.FirstBytes)
		return
	}
	specs := make([]groupSpec, in.int(maxGroups))
	for i := range specs {
		specs[i] = groupSpec{seen: in.bool(), blockSize: int64(in.int(maxBlockSize)), single: in.bool(), kind: in.text(events.MaxName), window: int64(in.int(math.MaxInt32))}
	}
	if in.err == nil && cfg.Groups == nil {
		if err := l.core.groups.setSpecs(specs); err != nil {
			in.fail("%v", err)
		}
	}
}

func (l *loader) readHolders() {
	in := l.in
	n := in.number(math.MaxUint32)
	if limit := l.fleet.cfg.MaxHolders; n > uint64(limit) {
		in.err = fmt.Errorf("%w: %d, at most %d", ErrTooMany, n, limit)
		return
	}
	seen := map[ID]bool{}
	for range n {
		h := &Holder{fleet: l.fleet, stale: true}
		h.id = ID{Engine: in.text(maxEngine), Rank: unzigzag(in.number(anyNumber))}
		if seen[h.id] {
			in.fail("it has two holders %q, rank %d", h.id.Engine, h.id.Rank)
		}
		if in.err != nil {
			return
		}
		seen[h.id] = true
		h.number = l.core.numbers.alloc(h) // the next number, as the core has no other holders
		l.holders = append(l.holders, h)
	}
}

func (l *loader) readTiers() {
	in := l.in
	for range in.int(maxGroupTiers) {
		group := in.int(maxGroups) + events.NoGroup
		tier := events.Tier{Medium: in.text(events.MaxName), Locality: in.text(events.MaxName), Ownership: in.text(events.MaxName)}
		if in.err != nil {
			return
		}
		before := l.core.tiers.Len()
		if _, err := l.core.tiers.findOrAdd(group, &tier); err != nil || l.core.tiers.Len() == before {
			in.fail("group and tier %d", before)
		}
		if err := l.core.groups.learn(&events.Blocks{Group: group}); err != nil {
			in.fail("%v", err)
		}
	}
}

func (l *loader) readSets() {
	in, c := l.in, l.core
	for range in.number(math.MaxUint32) {
		pairs := c.pairs[:0]
		for range in.number(math.MaxUint32) {
			p := pair{groupTier: uint32(in.number(math.MaxUint32)), word: uint32(in.number(math.MaxUint32)), bits: in.fixed()}
			if in.err != nil || !l.isValid(p, pairs) {
				in.fail("set %d is wrong", len(l.sets))
				return
			}
			pairs = append(pairs, p)
		}
		c.pairs = pairs
		if len(pairs) == 0 {
			in.fail("set %d is empty", len(l.sets))
			return
		}
		hash := c.sets.hash(pairs)
		set, size := c.sets.find(pairs, hash), int64(0)
		if set == nil {
			size = sizeOfSet(len(pairs)) + internBytes + setChunkLen*16
		}
		// The list of the sets takes up to 16 bytes each, which are garbage later. Several may be equal.
		if !c.fits(size + 16*int64(len(l.sets)+1)) {
			l.failFull()
			return
		}
		if set == nil {
			set = c.sets.add(pairs, hash)
		}
		l.sets = append(l.sets, set)
	}
}

// isValid reports whether a pair may come behind others.
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
	in := l.in
	for {
		n := in.number(math.MaxUint32)
		if n == 0 || in.err != nil {
			return
		}
		number := in.number(math.MaxUint32)
		if number >= uint64(len(l.sets)) {
			in.fail("a block of set %d, there are %d", number, len(l.sets))
			return
		}
		for range n {
			if l.addRecord(in.fixed(), l.sets[number]); in.err != nil {
				return
			}
		}
	}
}

func (l *loader) addRecord(key uint64, set *holderSet) {
	c := l.core
	if l.in.err != nil {
		return
	}
	if _, ok := c.table.find(&c.log, key); ok {
		l.in.fail("block %016x is there twice", key)
		return
	}
	if growth := c.log.growth() + c.table.growth(key); growth > 0 && !c.fits(growth) || !c.log.canAppend() || !c.table.canInsert(key) {
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
	for _, h := range l.holders {
		if h.entries > l.fleet.cfg.MaxBlocks && l.in.err == nil {
			l.in.err = fmt.Errorf("%w: over %d blocks of one holder", ErrFull, l.fleet.cfg.MaxBlocks)
		}
	}
}

// count adds the entries of a pair with a number of blocks to its holders.
func (l *loader) count(p *pair, blocks int) {
	for slots := p.bits; slots != 0; slots &= slots - 1 {
		h := l.holders[p.word*64+uint32(bits.TrailingZeros64(slots))]
		h.entries += blocks
		l.core.numbers.list[h.number].isUsed = true
		at := l.core.tiers.At(p.groupTier)
		if _, err := h.findOrAddTier(&l.core.tiers, at.Group, &at.Tier); err != nil {
			l.in.fail("%v", err)
		}
	}
}
