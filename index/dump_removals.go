package index

import "unsafe"

// removals is what Evict, ResetPlaces and Reset have removed since the dump under way last looked,
// guarded by writing. The dump repeats it before what it copies next: it may have copied such a key before,
// also one that the index no longer holds.
type removals struct {
	first, last *removal
	bytes       int
	overflow    bool // it was more than maxRemovals bytes
}

type removal struct {
	DumpRecord
	next *removal
}

// maxRemovals bounds removals, in bytes: 200,000 keys that are evicted 64 at a time. The dump takes the
// removals in each hold, tens of thousands of times a second.
const maxRemovals = 8 << 20

// addEvict adds that keys were evicted from a place, at most a batch.
func (r *removals) addEvict(place int, keys []byte, hashLen int) {
	last := r.last
	if last == nil || last.Kind != DumpEvict || last.Places[0] != place || last.HashLen != hashLen ||
		len(last.Keys)+len(keys) > MaxDumpKeys*hashLen {
		last = &removal{DumpRecord: DumpRecord{Kind: DumpEvict, Places: []int{place}, HashLen: hashLen}}
		r.push(last)
	}
	room := cap(last.Keys)
	last.Keys = append(last.Keys, keys...)
	r.grow(cap(last.Keys) - room)
}

// addResetPlaces adds that all was removed from some places.
func (r *removals) addResetPlaces(places []uint64) {
	all := setOf(places)
	r.push(&removal{DumpRecord: DumpRecord{Kind: DumpResetPlaces, Places: all}})
	r.grow(len(all) * 8)
}

// addReset adds that all was removed, in place of all before.
func (r *removals) addReset() {
	*r = removals{overflow: r.overflow}
	r.push(&removal{DumpRecord: DumpRecord{Kind: DumpReset}})
}

func (r *removals) push(add *removal) {
	if r.last == nil {
		r.first = add
	} else {
		r.last.next = add
	}
	r.last = add
	r.grow(int(unsafe.Sizeof(removal{})) + 8)
}

// grow counts bytes. If they are too many all is dropped, and the dump will fail.
func (r *removals) grow(bytes int) {
	if r.bytes += bytes; r.bytes > maxRemovals || r.overflow {
		*r = removals{overflow: true}
	}
}
