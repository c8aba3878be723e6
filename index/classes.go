package index

// classes numbers the coverages of the entries. Each class counts its entries; its
// number and its memory are freed when none is left. Readers use Index.coverage only, of
// entries that they have found.
type classes struct {
	layout   *layout
	coverage []*Coverage // by class; nil for noClass and for free numbers
	use      []classUse  // by class
	byHash   map[uint64]class
	free     class // the first free number that was used before; others follow by next
	numbers  int   // that were ever used, noClass included
	live     int   // classes there are
	// idle lists classes that had no entry at some time. They are freed at the
	// beginning of a batch only: until then the batch that made one may use it.
	idle   []class
	budget int64 // bytes
}

// classUse is what writers know of a class.
type classUse struct {
	entries uint32 // that have the class
	next    class  // with the same hash, or the next free number
	idle    bool   // it is in the list of idle ones
}

const (
	// keepIdle is how many classes of no entry are kept for those that store next: a
	// rank that stores what others hold needs the same few again and again.
	keepIdle = 256
	// classShare and minClassBytes are the part of the byte bound that classes may
	// take: a 64th, but at least 128 KiB.
	classShare    = 64
	minClassBytes = 128 << 10
	// bytesPerNumber is a pointer, a classUse and a place in the map and in idle.
	bytesPerNumber = 8 + 8 + 32
	// firstNumbers is how many numbers there is room for at first.
	firstNumbers = 8
)

func newClasses(l *layout, budget int64) *classes {
	return &classes{
		layout: l, budget: budget, numbers: 1,
		coverage: make([]*Coverage, firstNumbers), use: make([]classUse, firstNumbers),
		byHash: map[uint64]class{},
	}
}

// classBudget returns how many bytes the classes of an index may take: no more than
// all sets of its places need, and a batch besides them.
func classBudget(maxBytes int64, places int, l *layout) int64 {
	sets := int64(1) << min(places, 16)
	return min(max(maxBytes/classShare, minClassBytes), (sets+batchKeys)*(l.bytesPerClass()+2*bytesPerNumber))
}

// bytesPerClass is a Coverage with its set and its counts, rounded up.
func (l *layout) bytesPerClass() int64 { return int64(8*l.words+2*len(l.sizes)) + 128 }

// bytes is the memory of the classes.
func (c *classes) bytes() int64 {
	return int64(c.live)*c.layout.bytesPerClass() + int64(len(c.coverage))*bytesPerNumber
}

// fit reports whether n more classes fit the budget and can be numbered.
func (c *classes) fit(n int) bool {
	numbers := len(c.coverage)
	for numbers-1 < c.live+n && numbers <= maxClasses {
		numbers *= 2
	}
	bytes := int64(c.live+n)*c.layout.bytesPerClass() + int64(numbers)*bytesPerNumber
	return bytes <= c.budget && c.live+n <= maxClasses
}

// coverageOf returns the coverage of a class, that of no place for noClass.
func (c *classes) coverageOf(id class) *Coverage {
	if id == noClass {
		return &c.layout.empty
	}
	return c.coverage[id]
}

// nextClass returns the class reached from one by adding or removing ascending places; noClass
// when nothing is left. It reports false when a new class is needed and none can be
// had. Writers call it.
func (x *Index) nextClass(from class, places []int, remove bool) (class, bool) {
	c := x.classes
	have := c.coverageOf(from)
	hash, changed := have.hash, 0
	for _, place := range places {
		if have.holds(place) == remove {
			hash ^= c.layout.hash(place)
			changed++
		}
	}
	switch {
	case changed == 0:
		return from, true
	case remove && changed == have.held:
		return noClass, true
	}
	for id := c.byHash[hash]; id != noClass; id = c.use[id].next {
		if c.coverage[id].differsBy(places, have, remove) {
			return id, true
		}
	}
	if !c.fit(1) {
		return noClass, false
	}
	to := c.layout.change(have, places, remove)
	if to.held, to.hash = have.held+changed, hash; remove {
		to.held = have.held - changed
	}
	return x.addClass(to), true
}

// addClass numbers a coverage that has no class. No entry has it yet.
func (x *Index) addClass(cov *Coverage) class {
	c := x.classes
	id := c.free
	if id != noClass {
		c.free = c.use[id].next
	} else {
		if c.numbers == len(c.coverage) {
			x.growClasses()
		}
		id = class(c.numbers)
		c.numbers++
	}
	c.coverage[id] = cov // no reader has met the number
	c.use[id] = classUse{next: c.byHash[cov.hash], idle: true}
	c.byHash[cov.hash] = id
	c.idle = append(c.idle, id)
	c.live++
	return id
}

// growClasses makes room for twice as many numbers. Readers wait for the exchange only.
func (x *Index) growClasses() {
	c := x.classes
	coverage := append(make([]*Coverage, 0, 2*len(c.coverage)), c.coverage...)[:2*len(c.coverage)]
	c.use = append(make([]classUse, 0, len(coverage)), c.use...)[:len(coverage)]
	x.mu.Lock()
	c.coverage, x.coverage = coverage, coverage
	x.mu.Unlock()
}

// added returns how many more places to has than from. places are those that were stored to.
func (c *classes) added(from, to class, places int) int64 {
	if places == 1 {
		return 1
	}
	return int64(c.coverageOf(to).held - c.coverageOf(from).held)
}

// setClass gives the entry at offset i of a segment another class, noClass if it goes. The caller
// holds mu.
func (x *Index) setClass(seg *segment, i int, to class) {
	c := x.classes
	if to != noClass {
		c.use[to].entries++
	}
	if from := seg.class[i]; from != noClass {
		u := &c.use[from]
		if u.entries--; u.entries == 0 && !u.idle {
			u.idle = true
			c.idle = append(c.idle, from)
		}
	}
	seg.class[i], seg.groupClass[i/groupSlots] = to, noClass
}

// freeIdle frees the classes of no entry if there are many, or if a batch might find
// no room for more. Between batches only.
func (c *classes) freeIdle() {
	if len(c.idle) <= keepIdle && (len(c.idle) == 0 || c.fit(batchKeys)) {
		return
	}
	for _, id := range c.idle {
		if c.use[id].idle = false; c.use[id].entries == 0 {
			c.freeClass(id)
		}
	}
	c.idle = c.idle[:0]
}

// freeClass frees the number and the memory of a class of no entry.
func (c *classes) freeClass(id class) {
	hash, next := c.coverage[id].hash, c.use[id].next
	switch first := c.byHash[hash]; {
	case first == id && next == noClass:
		delete(c.byHash, hash)
	case first == id:
		c.byHash[hash] = next
	default:
		for c.use[first].next != id {
			first = c.use[first].next
		}
		c.use[first].next = next
	}
	c.coverage[id] = nil // no reader has a slot of this class
	c.use[id] = classUse{next: c.free}
	c.free = id
	c.live--
}
