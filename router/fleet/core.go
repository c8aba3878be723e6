package fleet

import (
	"errors"
	"unsafe"
)

var (
	// errNoMemory says that a change needs more memory than the bound leaves.
	errNoMemory = errors.New("out of memory")
	// errNoRoom says that a change adds an entry to a holder that has as many as it may.
	errNoRoom = errors.New("out of room")
)

// core has the blocks and who holds them. Fleet.mu guards it.
type core struct {
	log     recordLog
	table   table
	sets    setTable
	numbers numberTable
	tiers   tierTable
	groups  groupTable

	pairs    []pair // reused by changed
	maxBytes int64
	// oldest is the first epoch that counts, at the last change: those before have expired, or were dropped to free
	// memory.
	oldest uint32
	// firstPredicted is the first epoch that sets may have, lastPredicted the last; 0: none.
	firstPredicted, lastPredicted uint32
	emptyRecords                  int64 // live records whose set is empty
	collection                    collection
	hand                          uint32 // segment where shrink ended
	copying                       int    // snapshots that are copied now: records and numbers stay where they are
}

func newCore(cfg *Config) *core {
	c := &core{table: newTable(), tiers: newTierTable(), maxBytes: cfg.MaxBytes}
	c.sets = newSetTable(c.table.secret[0]^c.table.secret[1], &c.numbers)
	c.groups.init(cfg)
	return c
}

// bytes returns the memory of all that grows with blocks and holders.
func (c *core) bytes() int64 {
	return c.log.bytes() + c.table.bytes() + c.sets.bytes() + c.numbers.bytes() + c.tiers.bytes() + c.groups.bytes() +
		int64(cap(c.pairs))*int64(unsafe.Sizeof(pair{}))
}

// fits reports whether n more bytes may be allocated. Compaction needs a segment at most, which is reserved.
func (c *core) fits(n int64) bool { return c.bytes()+n+segmentBytes <= c.maxBytes }

// find returns the position of a key: next if it is there, else by the table.
func (c *core) find(key uint64, next uint32) (pos uint32, ok bool) {
	if c.isAt(key, next) {
		return next, true
	}
	return c.table.find(&c.log, key)
}

// isAt reports whether a live record of a key is at a position, which may be any.
func (c *core) isAt(key uint64, pos uint32) bool {
	if c.log.set(pos) == deadRecord {
		return false
	}
	s, i := c.log.at(pos)
	return s.keys[i] == key
}

// change changes the set of the record at a position.
func (c *core) change(pos uint32, ch *change) (outcome, error) {
	s, i := c.log.at(pos)
	num := s.sets[i]
	from := c.sets.at(num)
	out, err := c.apply(from, ch)
	if err != nil || out.to == from {
		return out, err
	}
	if from == c.sets.empty {
		c.emptyRecords--
	}
	if out.to == c.sets.empty {
		c.removeRecord(pos)
		return out, nil
	}
	c.sets.entry(out.to.num).refs++
	s.sets[i] = out.to.num
	c.sets.unref(num)
	return out, nil
}

// removeRecord removes the record at a position.
func (c *core) removeRecord(pos uint32) {
	s, i := c.log.at(pos)
	num := s.sets[i]
	c.table.remove(s.keys[i], pos)
	c.log.markDead(pos)
	c.sets.unref(num)
}

// add makes a record of a key that is not there: at a position if there is room, else at the end of the log.
func (c *core) add(key uint64, at uint32, ch *change) (uint32, outcome, error) {
	growth, isRoom := c.table.growth(key), c.log.isRoom(at) && !c.collection.moves(at)
	if !isRoom {
		growth += c.log.growth()
	}
	switch {
	case ch.room <= 0:
		return 0, outcome{}, errNoRoom
	case growth > 0 && !c.fits(growth):
		return 0, outcome{}, errNoMemory
	}
	out, err := c.apply(c.sets.empty, ch)
	if err != nil {
		return 0, outcome{}, err
	}
	ch.made++
	if isRoom {
		c.log.fill(at, key, out.to.num)
	} else {
		if ch.appended++; ch.appended == 1 {
			ch.before = at
		}
		at = c.log.append(key, out.to.num)
	}
	c.table.insert(key, at)
	c.sets.entry(out.to.num).refs++
	return at, out, nil
}
