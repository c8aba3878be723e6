package fleet

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkCore checks the invariants of a fleet.
func checkCore(t *testing.T, f *Fleet) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.core
	refs, records, dead, empty := map[uint32]uint32{}, int64(0), int64(0), int64(0)
	for n, s := range c.log.segments {
		if s == nil {
			require.Contains(t, c.log.free, uint32(n))
			continue
		}
		live := int32(0)
		for i := range s.used {
			num := s.sets[i]
			if num == deadRecord {
				dead++
				continue
			}
			live++
			refs[num]++
			if c.sets.at(num) == c.sets.empty {
				empty++
			}
			pos, ok := c.table.find(&c.log, s.keys[i])
			if !ok || pos != uint32(n)<<segmentBits|uint32(i) {
				t.Fatalf("the table lacks record %d of segment %d", i, n)
			}
		}
		require.Equal(t, live, s.live)
		records += int64(live)
	}
	require.Equal(t, records, c.log.records)
	require.Equal(t, dead, c.log.dead)
	require.Equal(t, empty, c.emptyRecords)
	slots, buckets, last := int64(0), int64(0), (*bucket)(nil)
	for _, e := range c.table.dir {
		b := e.bucket
		require.Same(t, b.slots, e.slots)
		if b != last {
			used := slices.DeleteFunc(slices.Clone(b.slots[:]), func(s uint64) bool { return s == 0 })
			require.EqualValues(t, b.n, len(used))
			slots, buckets, last = slots+int64(b.n), buckets+1, b
		}
	}
	require.Equal(t, records, slots)
	require.Equal(t, buckets, c.table.buckets)
	checkSets(t, c, refs)
}

func checkSets(t *testing.T, c *core, refs map[uint32]uint32) {
	t.Helper()
	count, free, size, interned := 0, 0, int64(0), 0
	charged := map[*Holder]int{}
	for i := range c.numbers.list {
		if h := c.numbers.list[i].holder; h != nil {
			charged[h], h.charged = h.charged, 0
		}
	}
	for num := uint32(1); num < c.sets.next; num++ {
		e := c.sets.entry(num)
		if e.set == nil && refs[num] == 0 {
			free++
			continue
		}
		if e.set == nil || refs[num] != e.refs || e.refs == 0 {
			t.Fatalf("set %d: %+v, but %d references", num, e, refs[num])
		}
		if e.set == c.sets.empty {
			continue
		}
		if e.set.num != num || c.sets.hash(e.set.pairs) != e.set.hash {
			t.Fatalf("set %d: %+v", num, e.set)
		}
		if c.sets.intern[e.set.hash] == num {
			interned++
		}
		count++
		size += sizeOfSet(len(e.set.pairs))
		c.sets.charge(e.set, 1)
		for i, p := range e.set.pairs {
			isSorted := i == 0 || e.set.pairs[i-1].groupTier < p.groupTier || e.set.pairs[i-1].groupTier == p.groupTier && e.set.pairs[i-1].word < p.word
			if p.bits == 0 || !isSorted || p.bits&^(c.numbers.live[p.word]|c.numbers.retired[p.word]) != 0 {
				t.Fatalf("set %d: %+v", num, e.set)
			}
			for holders := p.bits; holders != 0; holders &= holders - 1 {
				if !c.numbers.list[p.word*64+uint32(bits.TrailingZeros64(holders))].isUsed {
					t.Fatalf("set %d: %+v has a number that is not used", num, e.set)
				}
			}
		}
	}
	for h, n := range charged {
		require.Equal(t, h.charged, n)
	}
	for num := c.sets.free; num != 0; num = c.sets.entry(num).refs {
		require.Nil(t, c.sets.at(num))
		free--
	}
	require.Zero(t, free)
	require.Equal(t, count, c.sets.count)
	require.Equal(t, size, c.sets.size)
	require.Len(t, c.sets.intern, interned)
}

// len returns the number of entries of a holder.
func (h *Holder) len() int {
	for _, s := range h.fleet.Holders() {
		if s.ID == h.id {
			return s.Blocks
		}
	}
	return 0
}
