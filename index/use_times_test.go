package index

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is evicted was used as long ago as it is said, to a 32nd of the time since the first call: written once, or also
// found by a lookup.
func TestEvictionAge(t *testing.T) {
	const full = 512 // seconds until the index is full, at a chain of a row each second
	for name, used := range map[string]bool{"written": false, "found": true} {
		x, start := mustNew(t, onePlace(full*rowSlots)), time.Now()
		var age time.Duration
		evicts := false
		for second := 0; second < 2*full; second++ {
			if age, evicts = x.EvictionAge(start.Add(time.Duration(second) * time.Second)); evicts {
				break
			}
			if used && second == full/2 {
				probe(x, chain(0, rowSlots, 32), 32, rowSlots, true)
			}
			store(t, x, chain(uint64(second), rowSlots, 32), 32)
		}
		require.True(t, evicts, name)
		require.LessOrEqual(t, age, full*time.Second, name)
		require.GreaterOrEqual(t, age, full*time.Second*30/32, name) // the second chain is as old as the first
		x.Reset()
		_, evicts = x.EvictionAge(start)
		require.False(t, evicts)
	}
}

// What lookups have found is evicted later, and then was used later.
func TestEvictionAgeOfUsed(t *testing.T) {
	x, start := mustNew(t, onePlace(2*rowSlots)), time.Now()
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	for seed := range uint64(2) {
		store(t, x, chain(seed, rowSlots, 32), 32)
	}
	x.EvictionAge(at(100))
	probe(x, chain(0, rowSlots, 32), 32, rowSlots, true)
	evict(t, x, 0, chain(1, rowSlots, 32), 32)
	store(t, x, chain(2, rowSlots, 32), 32) // what was found is used from here on
	_, evicts := x.EvictionAge(at(200))
	require.False(t, evicts, "only what it was asked to")
	store(t, x, chain(3, rowSlots, 32), 32)
	age, evicts := x.EvictionAge(at(300))
	require.True(t, evicts)
	require.Equal(t, 100*time.Second, age)
}

// The samples have a bound, however long the index lives.
func TestUseTimesAreBounded(t *testing.T) {
	var u useTimes
	start := time.Now()
	const last = 100_000
	for second := range last + 1 {
		u.add(uint64(second), start.Add(time.Duration(second)*time.Second))
	}
	for _, use := range []int{0, 1, 7, last / 2, last - last/10} {
		age := u.age(uint64(use), start.Add(last*time.Second))
		require.LessOrEqual(t, age, time.Duration(last-use)*time.Second)
		require.GreaterOrEqual(t, age, time.Duration(last-use-last/32)*time.Second)
	}
	require.Zero(t, u.age(last+1, start.Add(last*time.Second)))
}
