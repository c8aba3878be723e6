package tokens

import (
	"math/bits"
	"sort"
	"unsafe"
)

// table is the memory of what was asked: an entry for each block that it tracks, by fingerprint, in the order in which they
// were last asked for. It is bounded: the block that was not asked for longest gives way. It belongs to its account.
//
// A block is tracked if its fingerprint is below a threshold: a share of the blocks, chosen by their hashes. What was tracked
// for long enough is also judged: see judges. The log holds the order: an entry is where it was last appended, and what it
// has left is 0.
type table struct {
	maxEntries int
	limit      int      // entries for which there is memory
	entries    []entry  // the first is not used
	freed      []uint32 // entries to be used again
	slots      []uint32 // open addressing by fingerprint; 0 is free
	log        []uint32 // entries by their last ask, oldest first; a ring
	begin, end uint64   // of the log: positions, modulo its length
	recency    recency  // of what is in the log
	isFull     bool     // blocks have given way to others since adapt
	forgotten  int64    // when the block that gave way last was asked for, 0 for none

	threshold uint64 // blocks whose fingerprint is below it are tracked
	judged    uint64 // …and, below it, judged: at most threshold
	raised    int64  // when threshold was raised above judged
}

// entry is what is remembered of a block. Times are an account's, whose values differ from event to event; 0 is never.
type entry struct {
	fingerprint uint64
	asked       int64 // when it was last asked for
	whole       int64 // when it was last whole in the pool
	// missedBy is the first request that missed it since it was last whole, by its number, and lastMissedBy the last one, 0 for
	// none; missedUntil is when the first last asked.
	missedBy, lastMissedBy uint32
	missedUntil            int64
	stored                 uint64 // ranks of the memory index that have stored it since missedBy, as bits
	at                     uint32 // its position in the log, modulo 2^32
	weight                 uint16 // how many tracked blocks it stands for
	flags                  entryFlags
}

type entryFlags uint16

const (
	removedFlag entryFlags = 1 << iota // it was evicted by request since it was last whole or asked for
	emptiedFlag                        // missedBy missed it because the store was emptied, or for removedFlag
	storedFlag                         // whole by stores, not by a lookup
	staleFlag                          // stored is of before missedBy
)

const (
	minEntries = 1 << 10
	entryBytes = int(unsafe.Sizeof(entry{}))
)

// newTable returns an empty table that takes at most about maxBytes once it is full.
func newTable(maxBytes int) *table {
	t := &table{threshold: ^uint64(0), judged: ^uint64(0)}
	t.maxEntries = max(minEntries, sort.Search(maxBytes/entryBytes+1, func(n int) bool { return bytesOf(n) > maxBytes })-1)
	return t
}

// bytesOf returns what a table of n entries takes.
func bytesOf(n int) int { return n*entryBytes + 4*(slotsOf(n)+logOf(n)) }

// slotsOf and logOf return how many slots and positions of the log a table of n entries has: powers of two, so that a
// quarter of the slots is free, and a log that is full has gaps.
func slotsOf(n int) int { return 1 << bits.Len(uint(n*4/3)) }
func logOf(n int) int   { return 1 << bits.Len(uint(n*5/4+maxSamples)) }

// bytes returns what the table takes.
func (t *table) bytes() int {
	if t.limit == 0 {
		return 0
	}
	return bytesOf(t.limit)
}

// count returns the number of blocks in the table.
func (t *table) count() int { return max(0, len(t.entries)-1-len(t.freed)) }

// tracks reports whether a block has, or will have, an entry.
func (t *table) tracks(fingerprint uint64) bool { return fingerprint <= t.threshold }

// judges reports whether it can be told if a block was asked for before.
func (t *table) judges(fingerprint uint64) bool { return fingerprint <= t.judged }

// slot returns the slot of a fingerprint, or the free one where it belongs.
func (t *table) slot(fingerprint uint64) int {
	mask := len(t.slots) - 1
	i := int(fingerprint*odd>>32) & mask
	for t.slots[i] != 0 && t.entries[t.slots[i]].fingerprint != fingerprint {
		i = (i + 1) & mask
	}
	return i
}

// get returns the entry of a block, nil if there is none. It is valid until the next call of touch.
func (t *table) get(fingerprint uint64) *entry {
	if len(t.slots) == 0 {
		return nil
	}
	if i := t.slots[t.slot(fingerprint)]; i != 0 {
		return &t.entries[i]
	}
	return nil
}

// touch makes a block the one that was asked for last, and returns its entry. weight is how many tracked blocks it stands for.
// There must be room for it: see makeRoom.
func (t *table) touch(fingerprint uint64, weight uint16) *entry {
	s := t.slot(fingerprint)
	i := t.slots[s]
	if i == 0 {
		if n := len(t.freed); n > 0 {
			i, t.freed = t.freed[n-1], t.freed[:n-1]
		} else {
			i = uint32(len(t.entries))
			t.entries = append(t.entries, entry{})
		}
		t.entries[i] = entry{fingerprint: fingerprint}
		t.slots[s] = i
	} else {
		t.unlog(&t.entries[i])
	}
	e := &t.entries[i]
	e.at, e.weight = uint32(t.end), weight
	t.log[t.end&uint64(len(t.log)-1)] = i
	t.recency.add(int(t.end)&(len(t.log)-1), int32(weight))
	t.end++
	return e
}

// makeRoom makes room for n touches of blocks. If reserve allows it the table grows up to maxEntries; otherwise the blocks
// that were not asked for longest are removed.
func (t *table) makeRoom(n int, reserve func(bytes int) bool) {
	if want := t.count() + n; want > t.limit && t.limit < t.maxEntries {
		to := min(t.maxEntries, max(minEntries, 2*t.limit, want))
		if reserve(bytesOf(to) - t.bytes()) {
			t.resize(to)
		}
	}
	for t.count() > 0 && t.count()+n > t.limit {
		oldest := t.oldest()
		t.isFull, t.forgotten = true, oldest.asked
		t.remove(oldest)
	}
	if t.end-t.begin+uint64(n) > uint64(len(t.log)) {
		t.compact()
	}
}

// resize gives the table memory for another number of entries. Those that find no place are removed, oldest first.
func (t *table) resize(limit int) {
	for t.count() > limit {
		t.remove(t.oldest())
	}
	old := *t
	t.limit, t.freed, t.begin, t.end = limit, nil, 0, 0
	t.entries, t.slots, t.log = make([]entry, 1, limit+1), make([]uint32, slotsOf(limit)), make([]uint32, logOf(limit))
	t.recency.reset(len(t.log))
	for ; old.begin < old.end; old.begin++ {
		if i := old.log[old.begin&uint64(len(old.log)-1)]; i != 0 {
			e := t.touch(old.entries[i].fingerprint, old.entries[i].weight)
			at := e.at
			*e = old.entries[i]
			e.at = at
		}
	}
}

// oldest returns the entry that was not asked for longest, nil if there is none.
func (t *table) oldest() *entry {
	for ; t.begin < t.end; t.begin++ {
		if i := t.log[t.begin&uint64(len(t.log)-1)]; i != 0 {
			return &t.entries[i]
		}
	}
	return nil
}

// remove removes an entry. Entries behind its slot move up, as no slot marks what was removed.
func (t *table) remove(e *entry) {
	t.unlog(e)
	mask := len(t.slots) - 1
	free := t.slot(e.fingerprint)
	t.freed = append(t.freed, t.slots[free])
	t.slots[free] = 0
	for i := (free + 1) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		home := int(t.entries[t.slots[i]].fingerprint*odd>>32) & mask
		if (i-home)&mask >= (i-free)&mask {
			t.slots[free], t.slots[i] = t.slots[i], 0
			free = i
		}
	}
	*e = entry{}
}

// unlog removes an entry from the log.
func (t *table) unlog(e *entry) {
	at := int(e.at) & (len(t.log) - 1)
	t.log[at] = 0
	t.recency.add(at, -int32(e.weight))
}

// compact closes the gaps of the log.
func (t *table) compact() {
	t.recency.reset(len(t.log))
	to := t.begin
	mask := uint64(len(t.log) - 1)
	for from := t.begin; from < t.end; from++ {
		i := t.log[from&mask]
		t.log[from&mask] = 0
		if i != 0 {
			t.log[to&mask] = i
			t.entries[i].at = uint32(to)
			t.recency.add(int(to&mask), int32(t.entries[i].weight))
			to++
		}
	}
	t.end = to
}
