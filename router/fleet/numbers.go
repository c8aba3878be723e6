package fleet

import "math/bits"

// holderNumber is the state of a holder number: a bit in the sets. A holder has one; Clear gives it another if blocks
// may be stored under it.
type holderNumber struct {
	holder  *Holder // nil: free, or retired
	since   uint64  // version at which the holder got it
	index   uint32  // of the holder
	isUsed  bool    // some set may have it
	freshAt uint64  // version at which it became fresh last
	stated  *statement
}

// bitmap is a set of holder numbers in words of 64.
type bitmap []uint64

func (b bitmap) set(i uint32)      { b[i/64] |= 1 << (i % 64) }
func (b bitmap) clear(i uint32)    { b[i/64] &^= 1 << (i % 64) }
func (b bitmap) has(i uint32) bool { return b[i/64]>>(i%64)&1 != 0 }

// add is set, and makes the bitmap longer if that is needed.
func (b *bitmap) add(i uint32) {
	for len(*b) <= int(i/64) {
		*b = append(*b, 0)
	}
	b.set(i)
}

// numberTable has the holder numbers. All bitmaps have an equal number of words.
type numberTable struct {
	list    []holderNumber
	live    bitmap // of holders
	fresh   bitmap // those of them that are not stale: events count
	retired bitmap // numbers that no holder has, and some set may have
	free    []uint32
	pending int    // how many are retired
	version uint64 // counts the numbers that were retired or became fresh
}

func (t *numberTable) bytes() int64 {
	return int64(cap(t.list))*40 + int64(len(t.live))*3*8 + int64(cap(t.free))*4
}

// alloc gives a holder, which has stated something, a number.
func (t *numberTable) alloc(h *Holder, stated *statement) uint32 {
	num := uint32(len(t.list))
	if n := len(t.free); n > 0 {
		num, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.grow()
	}
	t.list[num] = holderNumber{holder: h, index: h.index, since: t.version}
	t.live.set(num)
	t.state(num, stated)
	if !h.stale {
		t.setFresh(num)
	}
	return num
}

// grow adds a number.
func (t *numberTable) grow() {
	if len(t.list)%64 == 0 {
		t.live, t.fresh, t.retired = append(t.live, 0), append(t.fresh, 0), append(t.retired, 0)
	}
	t.list = append(t.list, holderNumber{})
}

// state gives a number a statement; nil: it is retired.
func (t *numberTable) state(num uint32, to *statement) {
	at := &t.list[num]
	used := 0
	if at.isUsed {
		used = 1
	}
	if from := at.stated; from != nil {
		from.holders.clear(num)
		from.rules.holders.clear(num)
		from.rules.used -= used
	}
	if at.stated = to; to != nil {
		to.holders.add(num)
		to.rules.holders.add(num)
		to.rules.used += used
	}
}

// use says that some set may have a number.
func (t *numberTable) use(num uint32) {
	if at := &t.list[num]; !at.isUsed {
		at.isUsed = true
		at.stated.rules.used++
	}
}

// setFresh makes events count for a number, in queries that begin from now on.
func (t *numberTable) setFresh(num uint32) {
	t.version++
	t.fresh.set(num)
	t.list[num].freshAt = t.version
}

// isFresh reports whether a number has been fresh since a version.
func (t *numberTable) isFresh(num uint32, version uint64) bool {
	return t.fresh.has(num) && t.list[num].freshAt <= version
}

// retire takes a number from its holder: from now on no query counts it. It is free again when no set has it.
func (t *numberTable) retire(num uint32) {
	t.version++
	t.live.clear(num)
	t.fresh.clear(num)
	t.list[num].holder = nil
	t.state(num, nil)
	if t.list[num].isUsed {
		t.retired.set(num)
		t.pending++
	} else {
		t.free = append(t.free, num)
	}
}

// freeAll frees the retired numbers in a bitmap, which no set has.
func (t *numberTable) freeAll(swept bitmap) {
	for w, word := range swept {
		for ; word != 0; word &= word - 1 {
			num := uint32(w*64 + bits.TrailingZeros64(word))
			t.retired.clear(num)
			t.free = append(t.free, num)
			t.pending--
		}
	}
}
