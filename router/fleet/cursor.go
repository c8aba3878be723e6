package fleet

import (
	"encoding/binary"
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// cursor is where a query is in the log. A cursor is valid while the lock is held.
type cursor struct {
	seg  *segment
	i    int // index of the next record
	same int // how many records from there on have the keys of the next hashes: some may be dead
}

// next moves over the records of the first hashes of a blob, and returns their set number and how many they are. It
// asks the table unless they are the next in the log. For a hash that has no record it returns deadRecord and 1.
func (cur *cursor) next(c *core, blob []byte, hashLen, at int) (num uint32, n int) {
	if cur.same == 0 && cur.seg != nil {
		cur.same = equalKeys(cur.seg.keys[cur.i:], blob, hashLen, at)
	}
	if cur.same == 0 || cur.seg.sets[cur.i] == deadRecord {
		pos, ok := c.table.find(&c.log, key(blob, at))
		if !ok {
			cur.same = 0
			return deadRecord, 1
		}
		seg, i := c.log.at(pos)
		cur.seg, cur.i = seg, int(i)
		cur.same = equalKeys(seg.keys[i:], blob, hashLen, at)
	}
	sets := cur.seg.sets[cur.i:][:cur.same]
	n = equalSets(sets)
	cur.i += n
	cur.same -= n
	return sets[0], n
}

// isLittleEndian says that keys are in memory as the hashes are.
var isLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// equalKeys returns how many of the first keys are those of the first hashes.
func equalKeys(keys []uint64, hashes []byte, hashLen, at int) int {
	if hashLen == shortLen && isLittleEndian {
		return simd.EqualPrefix(bytesOf(keys), hashes, shortLen)
	}
	n := min(len(keys), len(hashes)/hashLen)
	for i, k := range keys[:n] {
		if key(hashes, i*hashLen+at) != k {
			return i
		}
	}
	return n
}

// equalSets returns how many of some set numbers, of which there is one at least, are equal to the first.
func equalSets(sets []uint32) int {
	if len(sets) == 1 || sets[1] != sets[0] {
		return 1
	}
	return 1 + simd.EqualPrefix(bytesOf(sets[1:]), bytesOf(sets), 4)
}

func bytesOf[T uint32 | uint64](list []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(list[0])))
}
