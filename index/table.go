package index

import (
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// table maps the hash of a key to its slot: extendible hashing, pages of buckets
// behind a directory. A full page splits into two, so growth never moves more
// than one page and needs no second copy of the table.
//
// Of a key's 64-bit seeded hash the upper bits choose the page, eight in the middle
// the bucket. The tag is 16 of the upper bits, from a multiple of tagWindow on: those by which
// the page may split next, and more. So a split needs no hashes, which are not kept. Only every
// tagWindow-th one takes them anew from the keys in the log, and gives the entries new tags.
type table struct {
	directory []*page // 1<<depth pointers; a page of depth d stands 1<<(depth-d) times
	shift     uint    // 64 - depth

	// The rest belongs to the writers.
	leaves    []leaf // of the pages in directory
	fresh     []page // of the newest slab, not used yet
	spare     []*page
	slabs     []*memory
	slabBytes int64
	pages     int64
}

// A bucket is one cache line.
const (
	bucketCells = simd.BucketTags
	pageBuckets = 256 // so many that the directory stays in the processor's cache
	pageCells   = bucketCells * pageBuckets
	// pageFull is the load at which a page splits: four fifths. Every sixth bucket has then
	// overflowed into the next one, which is in the same page.
	pageFull = pageCells * 4 / 5
	// pageBrim is how full a page that cannot split may become: there is still
	// room for a batch of stores.
	pageBrim = pageCells - batchKeys
	// batchSplits is how many pages one batch splits, some 15 microseconds each. A split with new
	// tags takes some 80 and counts as two. All pages become full at about the same time; the
	// others wait until they are at the brim.
	batchSplits = 2
	// tagWindow is by how many bits a page splits until it gets new tags. At least 9 bits of a
	// tag then tell the entries of a bucket apart: of the keys looked for at most one in 60
	// meets the tag of another one.
	tagWindow = 8
	// maxAway is room for the entries of a page that are in another bucket than the one where
	// they belong: five in a hundred of a full page.
	maxAway = pageCells / 8
	// maxDepth is the last depth at which tags have none of the bits that choose the bucket.
	maxDepth = 4*tagWindow - 1
)

// bucket holds ten cells: tags, compared by a kernel, and the slots, each plus one.
// Those in use come first. The slots of the others are zero.
type bucket struct {
	tags   [bucketCells]uint16
	passed uint16 // entries that found this bucket full and went on to the next
	// state has three parts. Bit i, for each cell: its entry has passed the bucket where it
	// belongs. From usedBit on: how many cells are in use. From windowBit on: the bits of a hash
	// that the tags are, see tag.
	state uint16
	slots [bucketCells]uint32
}

const (
	usedBit   = bucketCells
	windowBit = usedBit + 4
)

// used returns how many cells are in use.
func (b *bucket) used() int { return int(b.state >> usedBit & 15) }

// tag returns the tag of a hash in this bucket: the 16 bits behind the first windows.
func (b *bucket) tag(h uint64) uint16 { return uint16(h << (b.state >> windowBit * tagWindow) >> 48) }

// add uses one more cell. away is 1 if the entry has passed the bucket where it belongs, else 0.
func (b *bucket) add(tag uint16, s uint32, away uint16) {
	at := b.used()
	b.tags[at], b.slots[at] = tag, s
	b.state += 1<<usedBit + away<<at
}

// remove removes a cell; the last one takes its place.
func (b *bucket) remove(cell int) {
	last := b.used() - 1
	b.tags[cell], b.slots[cell] = b.tags[last], b.slots[last]
	b.slots[last] = 0
	away := b.state >> last & 1
	b.state = b.state&^(1<<cell|1<<last) - 1<<usedBit
	if cell < last {
		b.state |= away << cell
	}
}

type page struct{ buckets [pageBuckets]bucket }

// leaf is what writers know of a page. There is one next to each pointer to the page.
type leaf struct {
	used uint16 // cells; kept in the first of the page's leaves
	bits uint8  // the page has 1<<bits leaves
}

const (
	pageBytes = int64(unsafe.Sizeof(page{}))
	// placeBytes is what the directory takes for each pointer to a page.
	placeBytes = int64(unsafe.Sizeof((*page)(nil)) + unsafe.Sizeof(leaf{}))
	// slabLeastPages is how many pages are allocated at a time at first.
	slabLeastPages = 4
)

func newTable() *table {
	t := &table{shift: 64, leaves: make([]leaf, 1)}
	t.directory = []*page{t.newPage()}
	return t
}

// newPage returns a page. Only that of a new table is known to be empty.
func (t *table) newPage() *page {
	t.pages++
	if n := len(t.spare); n > 0 {
		p := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return p
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
	return p
}

// bytes is the memory of the table.
func (t *table) bytes() int64 { return t.slabBytes + placeBytes*int64(len(t.directory)) }

// worstTable bounds the bytes of a table of n entries: just split pages are half
// of pageFull full, some pages less by chance, and the directory may have just
// doubled.
func worstTable(n int64) int64 {
	const perPage = pageFull * 2 / 5
	pages := n/perPage + 1
	return pages*(pageBytes+8*placeBytes) + (pages/slabShare+slabLeastPages)*pageBytes
}

func (t *table) page(h uint64) *page { return t.directory[h>>t.shift] }

// bucket returns the bucket where a hash belongs, and reads no memory but the directory.
func (t *table) bucket(h uint64) *bucket { return t.page(h).bucket(home(h)) }

// bucket returns &p.buckets[b]. Go would check p for nil by a read of the first bucket, which
// may miss the caches.
func (p *page) bucket(b uint) *bucket {
	return (*bucket)(unsafe.Add(unsafe.Pointer(p), uintptr(b)*unsafe.Sizeof(bucket{})))
}

// home is the bucket where a hash belongs.
func home(h uint64) uint { return uint(h>>16) % pageBuckets }

// leaf returns what writers know of a hash's page.
func (t *table) leaf(h uint64) *leaf {
	i := h >> t.shift
	bits := t.leaves[i].bits & 63 // spares a comparison
	return &t.leaves[i>>bits<<bits]
}

// cells calls visit with the slot of each cell whose tag is that of h, until it
// returns true.
func (t *table) cells(h uint64, visit func(s slot) bool) {
	p := t.page(h)
	for i, b := 0, home(h); i < pageBuckets; i, b = i+1, (b+1)%pageBuckets {
		bk := p.bucket(b)
		want := bk.tag(h)
		for cell, tag := range bk.tags {
			if tag == want && bk.slots[cell] != 0 && visit(slot(bk.slots[cell]-1)) {
				return
			}
		}
		if bk.passed == 0 {
			return
		}
	}
}

// insert adds a cell; the caller knows that the key is not there and has called
// prepare for it. b is where the hash belongs.
func (t *table) insert(b *bucket, h uint64, s slot) {
	t.leaf(h).used++
	if b.used() < bucketCells {
		b.add(b.tag(h), uint32(s)+1, 0)
	} else {
		t.page(h).insert(h, s)
	}
}

func (p *page) insert(h uint64, s slot) {
	for b, away := home(h), uint16(0); ; b, away = (b+1)%pageBuckets, 1 {
		bk := p.bucket(b)
		if bk.used() < bucketCells {
			bk.add(bk.tag(h), uint32(s)+1, away)
			return
		}
		bk.passed++
	}
}

// replace makes the cell of one slot that of another; with noSlot it becomes
// empty.
func (t *table) replace(h uint64, old, s slot) {
	p := t.page(h)
	for i, b := 0, home(h); i < pageBuckets; i, b = i+1, (b+1)%pageBuckets {
		bk := p.bucket(b)
		for cell, have := range bk.slots {
			if have != uint32(old)+1 {
				continue
			}
			if bk.slots[cell] = uint32(s) + 1; s == noSlot {
				bk.remove(cell)
				t.leaf(h).used--
				for b := home(h); i > 0; i, b = i-1, (b+1)%pageBuckets {
					p.bucket(b).passed--
				}
			}
			return
		}
		if bk.passed == 0 {
			return
		}
	}
}

// prepare makes room for a key of hash h, so that insert finds some even after a
// whole batch of others. It returns false if there is none: too many hashes agree, which
// seeded ones do not. Writers call it without the readers' lock, which is taken for the moment
// of the exchange only.
func (x *Index) prepare(h uint64) bool {
	t := x.table
	for {
		l := t.leaf(h)
		if l.used < pageFull || x.splits >= batchSplits && l.used < pageBrim {
			return true
		}
		if !t.maySplit(l) {
			return l.used < pageBrim
		}
		x.splits++
		x.split(h)
	}
}

// maySplit refuses to double a directory that already is far larger than its
// pages need: hashes that spread never come near the factor.
func (t *table) maySplit(l *leaf) bool {
	return l.bits > 0 || 64-t.shift < maxDepth && int64(len(t.directory)) <= 16*t.pages
}

// split divides the page of a hash by one more bit.
func (x *Index) split(h uint64) {
	t := x.table
	directory, leaves, shift := t.directory, t.leaves, t.shift
	bits := t.leaf(h).bits
	if bits == 0 {
		directory, leaves = double(directory), double(leaves)
		for i := range leaves {
			leaves[i].bits++
		}
		shift--
		bits = 1
	}
	bits-- // of a half
	old, halves := t.page(h), [2]*page{t.newPage(), t.newPage()}
	used := x.divide(old, &halves, 64-shift-uint(bits))
	n := 1 << bits
	first := int(h>>shift) &^ (2*n - 1)
	x.mu.Lock()
	for i := range n {
		directory[first+i], directory[first+n+i] = halves[0], halves[1]
	}
	t.directory, t.shift = directory, shift
	x.mu.Unlock()
	for i := range n {
		leaves[first+i], leaves[first+n+i] = leaf{uint16(used[0]), bits}, leaf{uint16(used[1]), bits}
	}
	t.leaves = leaves
	t.spare = append(t.spare, old)
	t.pages--
}

// divide writes the entries of a page into two others, of the given depth, and returns how many
// each of them has. An entry in the bucket where it belongs goes by a bit of its tag into the
// same bucket of its page. The others need the hash of their key.
func (x *Index) divide(old *page, halves *[2]*page, depth uint) (used [2]int) {
	var few [maxAway]uint32
	rest := few[:0]
	bit := 15 - (depth-1)%tagWindow
	newTags := depth%tagWindow == 0
	window := uint16(depth / tagWindow << windowBit)
	for b := range uint(pageBuckets) {
		from := old.bucket(b)
		to := [2]*bucket{halves[0].bucket(b), halves[1].bucket(b)}
		*to[0], *to[1] = bucket{state: window}, bucket{state: window}
		for cell, s := range from.slots[:from.used()] {
			if newTags || from.state>>cell&1 == 1 {
				rest = append(rest, s)
				continue
			}
			tag := from.tags[cell]
			to[tag>>bit&1].add(tag, s, 0)
		}
		used[0] += to[0].used()
		used[1] += to[1].used()
	}
	if newTags {
		x.splits++ // as it takes so long
	}
	x.hashSlots(rest, func(h uint64, s slot) {
		half := h >> (64 - depth) & 1
		halves[half].insert(h, s)
		used[half]++
	})
	return used
}

// hashSlots calls visit with each of some slots, given as in a bucket, and the hash of its key.
// The next keys are fetched meanwhile.
func (x *Index) hashSlots(slots []uint32, visit func(h uint64, s slot)) {
	const part = 32 // keys
	x.fetchKeys(slots[:min(part, len(slots))])
	for len(slots) > 0 {
		n := min(part, len(slots))
		x.fetchKeys(slots[n:min(n+part, len(slots))])
		for _, s := range slots[:n] {
			seg, j := x.at(slot(s - 1))
			visit(x.hash(seg.key(j)), slot(s-1))
		}
		slots = slots[n:]
	}
}

// fetchKeys starts to fetch the keys of some slots, given as in a bucket, at most 32.
func (x *Index) fetchKeys(slots []uint32) {
	var keys [32]*byte
	for i, s := range slots {
		seg, j := x.at(slot(s - 1))
		keys[i] = unsafe.SliceData(seg.key(j))
	}
	simd.Prefetch(keys[:len(slots)])
}

func double[T any](s []T) []T {
	wide := make([]T, 2*len(s))
	for i, v := range s {
		wide[2*i], wide[2*i+1] = v, v
	}
	return wide
}
