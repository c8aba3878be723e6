package fleet

import (
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
	refs, aliases, records, dead, dying := map[uint32]uint32{}, map[uint32]uint32{}, int64(0), int64(0), int64(0)
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
				dying++
			}
			pos, ok := c.table.find(&c.log, s.keys[i])
			require.True(t, ok, "the table lacks a record")
			require.Equal(t, uint32(n)<<segmentBits|uint32(i), pos)
		}
		require.Equal(t, live, s.live)
		records += int64(live)
	}
	require.Equal(t, records, c.log.records)
	require.Equal(t, dead, c.log.dead)
	require.Equal(t, dying, c.dying)
	slots, buckets, last := int64(0), int64(0), (*bucket)(nil)
	for _, b := range c.table.dir {
		if b != last {
			used := slices.DeleteFunc(slices.Clone(b.slots[:]), func(s uint64) bool { return s == 0 })
			require.EqualValues(t, b.n, len(used))
			slots, buckets, last = slots+int64(b.n), buckets+1, b
		}
	}
	require.Equal(t, records, slots)
	require.Equal(t, buckets, c.table.buckets)
	checkSets(t, c, refs, aliases)
}

func checkSets(t *testing.T, c *core, refs, aliases map[uint32]uint32) {
	t.Helper()
	for num := uint32(1); num < c.sets.next; num++ {
		if set := c.sets.at(num); set != nil && set.num != num {
			aliases[set.num]++
		}
	}
	count, size, inUse := 0, int64(0), slices.Clone(c.slots.live)
	for num := uint32(1); num < c.sets.next; num++ {
		e := c.sets.entry(num)
		require.Equal(t, refs[num], e.refs, "references of set %d", num)
		require.Equal(t, aliases[num], e.aliases, "aliases of set %d", num)
		if e.set == nil {
			require.Contains(t, c.sets.free, num)
			continue
		}
		require.NotZero(t, e.refs+e.aliases)
		if e.set.num == num {
			require.Equal(t, num, c.sets.intern[e.set.hash])
			require.Equal(t, c.sets.hash(e.set.pairs), e.set.hash)
			count++
			size += sizeOfSet(len(e.set.pairs))
		}
		for i, p := range e.set.pairs {
			require.NotZero(t, p.bits)
			require.True(t, i == 0 || e.set.pairs[i-1].place < p.place || e.set.pairs[i-1].place == p.place && e.set.pairs[i-1].word < p.word)
			require.Zero(t, p.bits&^(inUse[p.word]|c.slots.retired[p.word]), "a set has a slot that is free")
			for slot := range uint32(64) {
				if p.bits>>slot&1 != 0 {
					require.True(t, c.slots.list[p.word*64+slot].isUsed)
				}
			}
		}
	}
	require.Equal(t, count, c.sets.count)
	require.Equal(t, size, c.sets.size)
	require.Len(t, c.sets.intern, count)
}
