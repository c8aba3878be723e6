package index

// table maps the hash of a key to its slot: extendible hashing, pages of
// open-addressed cells behind a directory. A full page splits into two, so growth
// never rehashes more than one page and needs no second copy of the table.
//
// A cell is tag<<32 | slot+1, 0 when empty. The tag is the upper half of the
// key's 64-bit seeded hash: its upper bits choose the page, its lower bits the
// place in the page, and all of them must agree before a record is compared.
type table struct {
	directory []*page // 1<<depth pointers; a page of depth d stands 1<<(depth-d) times
	depth     uint
	pages     int64
}

// pageCells is the number of cells in a page: 4 KiB, one page of memory, and
// little enough that a split is over within a bounded batch.
const (
	pageCells = 512
	pageMask  = pageCells - 1
	// pageFull is the load at which a page splits. Linear probing stays short to
	// about nine tenths when a cell's tag settles nearly every probe.
	pageFull = pageCells * 9 / 10
)

type page struct {
	cells [pageCells]uint64
	used  int
	depth uint
	// overflow takes what does not fit where splitting does not help: keys whose
	// tags agree. Seeded hashes make it unreachable but for tests of a bad hash.
	overflow *page
}

// pageBytes is the size of a page in memory: the allocator rounds the struct's
// 4,120 bytes up to its size class.
const pageBytes = 4864

func newTable() *table {
	return &table{directory: []*page{{}}, pages: 1}
}

// bytes is the memory of the table.
func (t *table) bytes() int64 { return t.pages*pageBytes + 8*int64(len(t.directory)) }

// worstTable bounds the bytes of a table of n entries: just split pages are half
// of pageFull full, some pages less by chance, and the directory may have just
// doubled.
func worstTable(n int64) int64 {
	const perPage = pageFull * 2 / 5
	return (n/perPage+1)*(pageBytes+4*8) + pageBytes
}

func (t *table) page(tag uint32) *page {
	return t.directory[uint64(tag)>>(32-t.depth)]
}

// insert adds a cell; the caller knows that the key is not there.
func (t *table) insert(tag uint32, s slot) {
	p := t.page(tag)
	for p.used >= pageFull && p.overflow == nil && t.maySplit(p) {
		t.split(tag)
		p = t.page(tag)
	}
	for p.used >= pageFull {
		if p.overflow == nil {
			p.overflow = &page{}
			t.pages++
		}
		p = p.overflow
	}
	p.insert(tag, s)
}

// maySplit refuses to double a directory that already is far larger than its
// pages need: hashes that spread never come near the factor.
func (t *table) maySplit(p *page) bool {
	return p.depth < t.depth || t.depth < 32 && int64(len(t.directory)) <= 16*t.pages
}

func (p *page) insert(tag uint32, s slot) {
	i := tag & pageMask
	for p.cells[i] != 0 {
		i = (i + 1) & pageMask
	}
	p.cells[i] = uint64(tag)<<32 | (uint64(s) + 1)
	p.used++
}

// split divides the page of a tag by one more bit.
func (t *table) split(tag uint32) {
	old := t.page(tag)
	if old.depth == t.depth {
		wider := make([]*page, 2*len(t.directory))
		for i, p := range t.directory {
			wider[2*i], wider[2*i+1] = p, p
		}
		t.directory = wider
		t.depth++
	}
	depth := old.depth + 1
	halves := [2]*page{{depth: depth}, {depth: depth}}
	for _, c := range old.cells {
		if c != 0 {
			halves[c>>(64-depth)&1].insert(uint32(c>>32), slot(uint32(c)-1))
		}
	}
	span := 1 << (t.depth - depth)
	first := int(uint64(tag)>>(32-t.depth)) &^ (2*span - 1)
	for i := range span {
		t.directory[first+i], t.directory[first+span+i] = halves[0], halves[1]
	}
	t.pages++
}

// delete removes the cell of a slot and closes the gap, so that probing needs no
// tombstones.
func (t *table) delete(tag uint32, s slot) {
	want := uint64(tag)<<32 | (uint64(s) + 1)
	for p := t.page(tag); p != nil; p = p.overflow {
		for i := tag & pageMask; p.cells[i] != 0; i = (i + 1) & pageMask {
			if p.cells[i] == want {
				p.close(i)
				return
			}
		}
	}
}

// close empties cell i and moves back the cells behind it that probing would
// otherwise lose.
func (p *page) close(i uint32) {
	p.used--
	for j := i; ; {
		p.cells[i] = 0
		for {
			j = (j + 1) & pageMask
			if p.cells[j] == 0 {
				return
			}
			home := uint32(p.cells[j]>>32) & pageMask
			if (j-home)&pageMask >= (j-i)&pageMask { // the cell may move back to i
				break
			}
		}
		p.cells[i] = p.cells[j]
		i = j
	}
}
