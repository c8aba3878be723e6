package index

import (
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// table maps the hash of a key to its slot: extendible hashing, pages of buckets
// behind a directory. A full page splits into two, so growth never rehashes more
// than one page and needs no second copy of the table.
//
// Of a key's 64-bit seeded hash the upper bits choose the page, eight in the middle
// the bucket, and the lowest 16 are the tag. Hashes are not kept: a split takes
// them anew from the keys in the log.
type table struct {
	directory []*page // 1<<depth pointers; a page of depth d stands 1<<(depth-d) times
	shift     uint    // 64 - depth
	// overflow takes what does not fit where splitting does not help: keys whose
	// hashes agree. Seeded hashes make it unreachable but for tests of a bad hash.
	overflow map[*page]*page

	// The rest belongs to the writers.
	leaves    []*leaf // beside directory
	fresh     []page  // of the newest slab, not used yet
	spare     []*page // empty again after a split
	slabs     []*memory
	slabBytes int64
	pages     int64
}

// A bucket is one cache line.
const (
	bucketCells = simd.BucketTags
	pageBuckets = 256 // so many that the directory stays in the processor's cache
	pageCells   = bucketCells * pageBuckets
	// pageFull is the load at which a page splits: four fifths. A bucket then
	// overflows into the next one for every sixth, which is in the same page.
	pageFull = pageCells * 4 / 5
	// pageBrim is how full a page that cannot split may become: there is still
	// room for a batch of stores.
	pageBrim = pageCells - batchKeys
	// batchSplits is how many pages one batch splits, some 50 microseconds each. All
	// pages come to be full at about the same time; others wait until they are at the brim.
	batchSplits = 2
)

// bucket holds ten cells: tags, compared by a kernel, and the slots, each plus one,
// so that zero is empty.
type bucket struct {
	tags   [bucketCells]uint16
	passed uint32 // entries that found this bucket full and went on to the next
	slots  [bucketCells]uint32
}

type page struct{ buckets [pageBuckets]bucket }

// leaf is what writers know of a page.
type leaf struct {
	page  *page
	used  int
	depth uint
	next  *leaf // overflow
}

const (
	pageBytes = int64(unsafe.Sizeof(page{}))
	leafBytes = int64(unsafe.Sizeof(leaf{}))
	// slabLeastPages is how many pages are allocated at a time at first.
	slabLeastPages = 4
)

func newTable() *table {
	t := &table{shift: 64}
	l := t.newLeaf(0)
	t.directory, t.leaves = []*page{l.page}, []*leaf{l}
	return t
}

// newLeaf returns an empty page.
func (t *table) newLeaf(depth uint) *leaf {
	t.pages++
	if n := len(t.spare); n > 0 {
		p := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return &leaf{page: p, depth: depth}
	}
	if len(t.fresh) == 0 {
		n := max(slabUnits(t.slabBytes, pageBytes), slabLeastPages)
		m := newMemory(int(n * pageBytes))
		t.fresh = unsafe.Slice((*page)(unsafe.Pointer(unsafe.SliceData(m.bytes))), n)
		t.slabs = append(t.slabs, m)
		t.slabBytes += memorySize(n * pageBytes)
	}
	p := &t.fresh[0]
	t.fresh = t.fresh[1:]
	return &leaf{page: p, depth: depth}
}

// bytes is the memory of the table.
func (t *table) bytes() int64 {
	return t.slabBytes + t.pages*leafBytes + 16*int64(len(t.directory))
}

// worstTable bounds the bytes of a table of n entries: just split pages are half
// of pageFull full, some pages less by chance, and the directory may have just
// doubled.
func worstTable(n int64) int64 {
	const perPage = pageFull * 2 / 5
	pages := n/perPage + 1
	return pages*(pageBytes+leafBytes+8*16) + (pages/slabShare+slabLeastPages)*pageBytes
}

func (t *table) page(h uint64) *page { return t.directory[h>>t.shift] }

// bucket returns the bucket where a hash belongs, and reads no memory but the directory:
// Go checks the address of a field for nil by a read.
func (t *table) bucket(h uint64) *bucket {
	return (*bucket)(unsafe.Add(unsafe.Pointer(t.page(h)), uintptr(home(h))*unsafe.Sizeof(bucket{})))
}

// home is the bucket where a hash belongs.
func home(h uint64) uint { return uint(h>>16) % pageBuckets }

// cells calls visit with the slot of each cell whose tag is that of h, until it
// returns true.
func (t *table) cells(h uint64, visit func(s slot) bool) {
	for p := t.page(h); p != nil; p = t.overflow[p] {
		for i, b := 0, home(h); i < pageBuckets; i, b = i+1, (b+1)%pageBuckets {
			bk := &p.buckets[b]
			for cell, tag := range bk.tags {
				if tag == uint16(h) && bk.slots[cell] != 0 && visit(slot(bk.slots[cell]-1)) {
					return
				}
			}
			if bk.passed == 0 {
				break
			}
		}
	}
}

// insert adds a cell; the caller knows that the key is not there and has called
// prepare for it.
func (t *table) insert(h uint64, s slot) {
	l := t.leaves[h>>t.shift]
	for l.used >= pageCells {
		l = l.next
	}
	l.used++
	l.page.insert(h, s)
}

func (p *page) insert(h uint64, s slot) {
	for b := home(h); ; b = (b + 1) % pageBuckets {
		bk := &p.buckets[b]
		for cell, have := range bk.slots {
			if have == 0 {
				bk.tags[cell], bk.slots[cell] = uint16(h), uint32(s)+1
				return
			}
		}
		bk.passed++
	}
}

// replace makes the cell of one slot that of another; with noSlot it becomes
// empty.
func (t *table) replace(h uint64, old, s slot) {
	for l := t.leaves[h>>t.shift]; l != nil; l = l.next {
		if l.page.replace(h, old, s) {
			if s == noSlot {
				l.used--
			}
			return
		}
	}
}

func (p *page) replace(h uint64, old, s slot) bool {
	for i, b := 0, home(h); i < pageBuckets; i, b = i+1, (b+1)%pageBuckets {
		bk := &p.buckets[b]
		for cell, have := range bk.slots {
			if have != uint32(old)+1 {
				continue
			}
			if bk.slots[cell] = uint32(s) + 1; s == noSlot { // which is 0
				for b := home(h); i > 0; i, b = i-1, (b+1)%pageBuckets {
					p.buckets[b].passed--
				}
			}
			return true
		}
		if bk.passed == 0 {
			break
		}
	}
	return false
}

// prepare makes room for a key of hash h, so that insert finds some even after a
// whole batch of others. Writers call it without the readers' lock, which is
// taken for the moment of the exchange only.
func (x *Index) prepare(h uint64) {
	t := x.table
	l := t.leaves[h>>t.shift]
	for l.used >= pageFull && (x.splits < batchSplits || l.used >= pageBrim) && t.maySplit(l) {
		x.splits++
		x.split(h)
		l = t.leaves[h>>t.shift]
	}
	for ; l.used >= pageBrim; l = l.next {
		if l.next != nil {
			continue
		}
		l.next = t.newLeaf(l.depth)
		x.mu.Lock()
		if t.overflow == nil {
			t.overflow = map[*page]*page{}
		}
		t.overflow[l.page] = l.next.page
		x.mu.Unlock()
	}
}

// maySplit refuses to double a directory that already is far larger than its
// pages need: hashes that spread never come near the factor.
func (t *table) maySplit(l *leaf) bool {
	depth := l.depth
	return l.next == nil && (depth < 64-t.shift || depth < 32 && int64(len(t.directory)) <= 16*t.pages)
}

// split divides the page of a hash by one more bit.
func (x *Index) split(h uint64) {
	t := x.table
	x.work += workPerSplit
	old := t.leaves[h>>t.shift]
	depth := old.depth + 1
	halves := [2]*leaf{t.newLeaf(depth), t.newLeaf(depth)}
	x.rehash(old.page, func(h uint64, s slot) {
		half := halves[h>>(64-depth)&1]
		half.used++
		half.page.insert(h, s)
	})
	directory, leaves, shift := t.directory, t.leaves, t.shift
	if depth > 64-shift {
		directory, leaves = double(directory), double(leaves)
		x.writing.count(len(directory))
		shift--
	}
	span := 1 << (64 - shift - depth)
	first := int(h>>shift) &^ (2*span - 1)
	x.mu.Lock()
	x.mu.count(2 * span)
	for i := range span {
		directory[first+i], directory[first+span+i] = halves[0].page, halves[1].page
	}
	t.directory, t.shift = directory, shift
	x.mu.Unlock()
	for i := range span {
		leaves[first+i], leaves[first+span+i] = halves[0], halves[1]
	}
	t.leaves = leaves
	*old.page = page{}
	t.spare = append(t.spare, old.page)
	t.pages--
}

// rehash calls visit with each cell of a page and the hash of its key. The hashes
// come first: their cache misses overlap.
func (x *Index) rehash(p *page, visit func(h uint64, s slot)) {
	var hashes [pageCells]uint64
	cell := func(i int) uint32 { return p.buckets[i/bucketCells].slots[i%bucketCells] }
	for i := range hashes {
		if s := cell(i); s != 0 {
			seg, j := x.at(slot(s - 1))
			hashes[i] = x.hash(seg.key(j))
		}
	}
	for i, h := range hashes {
		if s := cell(i); s != 0 {
			visit(h, slot(s-1))
		}
	}
}

func double[T any](s []T) []T {
	wide := make([]T, 2*len(s))
	for i, v := range s {
		wide[2*i], wide[2*i+1] = v, v
	}
	return wide
}
