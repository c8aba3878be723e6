//go:build hitline_interleave

package index

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/simd"
)

// An index in every order of the holds of its locks. After each hold of a writer the log is
// read slowly, slot by slot; what a lookup is told must be what the log said under one of the
// lookup's holds.

// content is what the log says of each key: its places as a set, 0 if the key is absent, its
// link and its slot.
type content struct {
	held []uint8
	link []link
	slot []slot

	directory []*page
	lengths   [3]int // of the list of segments, the coverages and the hashes
}

// interval is the time of a hold or of a call, in operations.
type interval struct{ begin, end int }

// indexRun is one execution.
type indexRun struct {
	x     *Index
	keys  []byte // by number
	bound int64
	large bool // reading the log takes long
	found bool // lookups ask for what they have found

	states []content  // after each writer's hold, and at first
	resets []interval // of the holds that reset the index
	// resetStates are the states that these led to.
	resetStates []int
	removals    []interval // of those in which a key lost a place
	now         int        // counts operations
	closed      int        // when the gate was closed
	seen        map[*task][]int
	ended       map[*task]interval     // the last hold of a reader
	changes     map[*task]*indexChange // under way
}

// indexChange is what a writer does, and to which keys.
type indexChange struct {
	kind  changeKind
	place int
	ids   []int
	lost  int // places that keys lost
}

type changeKind int

const (
	noChange changeKind = iota
	changeStore
	changeEvict
	changeReset
)

const (
	interleavePlaces = 4
	interleaveLen    = 32
)

// All executions have one hash, so that their tasks do the same.
var interleaveHasher = func() (h hasher) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range h.words {
		h.words[i] = rng.Uint64()
	}
	h.finish = rng.Uint64() | 1
	return h
}()

// interleaveKeys returns n keys, which begin with their numbers.
func interleaveKeys(n int) []byte {
	keys := make([]byte, n*interleaveLen)
	_, _ = rand.NewChaCha8([32]byte{}).Read(keys)
	for i := range n {
		binary.LittleEndian.PutUint16(keys[i*interleaveLen:], uint16(i))
	}
	return keys
}

func newIndexRun(keys []byte, maxEntries int64) *indexRun {
	cfg := Config{MaxBytes: MinMaxBytes, MaxEntries: maxEntries, Places: interleavePlaces, Groups: [][]int{{0}, {1}, {0, 1}}}
	x, err := New(cfg)
	if err != nil {
		panic(err)
	}
	x.hasher = interleaveHasher
	x.layout = newLayout(cfg.Places, cfg.Groups, [2]uint64{x.hasher.words[0], x.hasher.finish})
	x.mu.stripes = x.mu.stripes[:1]
	x.clear()
	return &indexRun{x: x, keys: keys, bound: maxEntries, seen: map[*task][]int{}, ended: map[*task]interval{}, changes: map[*task]*indexChange{}}
}

// read reads the log, and checks what readers rely on.
func (h *indexRun) read() content {
	n := len(h.keys) / interleaveLen
	c := content{
		held: make([]uint8, n), link: make([]link, n), slot: make([]slot, n), directory: slices.Clone(h.x.table.directory),
		lengths: [3]int{len(h.x.segments), len(h.x.coverage), h.x.hashLen},
	}
	for id := range h.x.segments {
		seg := &h.x.segments[id]
		for word, used := range seg.used.words {
			group := seg.class[word*64:][:64]
			if same := seg.groupClass[word]; same != noClass {
				for _, class := range group {
					if class != same {
						fail(fmt.Sprintf("64 slots are said to have class %d, and have %d", same, group))
					}
				}
				if h.x.digests && h.x.secret.Sum(seg.records(word*groupSlots, groupSlots)) != seg.digests[word] {
					fail("the digest of 64 slots is not that of their keys")
				}
			}
			if group[0] == noClass && simd.RunLength16(group) == 64 {
				continue
			}
			for i := word * 64; i < word*64+64; i++ {
				class := seg.class[i]
				if class == noClass {
					continue
				}
				if used>>(i%64)&1 == 0 {
					fail("an entry is in a free slot")
				}
				key := seg.key(i)
				number := int(binary.LittleEndian.Uint16(key))
				switch {
				case number >= n || string(key) != string(h.key(number)):
					fail("the log has an unknown key")
				case c.held[number] != 0:
					fail(fmt.Sprintf("key %d is in the log twice", number))
				}
				if c.held[number] = h.places(h.x.coverage[class]); c.held[number] == 0 {
					fail("an entry has no place")
				}
				s := slot(id<<segmentBits + i)
				c.slot[number] = s
				if h.large {
					continue
				}
				if found := h.x.find(h.x.hash(key), key); found != s {
					fail(fmt.Sprintf("key %d is in slot %d, and found in %d", number, s, found))
				}
				c.link[number] = h.x.linkOf(s)
			}
		}
	}
	return c
}

func (h *indexRun) key(id int) []byte { return h.keys[id*interleaveLen:][:interleaveLen] }

func (h *indexRun) list(ids []int) (keys []byte) {
	for _, id := range ids {
		keys = append(keys, h.key(id)...)
	}
	return keys
}

// places returns the places of a coverage as a set.
func (h *indexRun) places(c *Coverage) (held uint8) {
	if c == nil {
		return 0
	}
	held = uint8(c.places[0])
	counts := []uint16{uint16(held & 1), uint16(held >> 1 & 1), uint16(held&1 + held>>1&1)}
	complete := uint64(held&3) | uint64(held&1&(held>>1))<<2
	if !slices.Equal(c.Counts, counts) || c.Complete != complete {
		fail("a coverage contradicts itself")
	}
	return held
}

// did follows what tasks do.
func (h *indexRun) did(t *task, o operation, _ int64) {
	h.now++
	switch object := o.object.(type) {
	case *syncBool:
		if object != &h.x.mu.closed || o.action != actStore {
			return
		}
		if o.value == 1 {
			h.closed = h.now
			return
		}
		h.published(h.changes[t])
	case *syncInt32:
		if o.action == actAdd && o.value < 0 {
			h.seen[t] = append(h.seen[t], len(h.states)-1)
			h.ended[t] = interval{h.now, h.now}
		}
	}
}

// published compares what a hold has changed with what its change may.
func (h *indexRun) published(change *indexChange) {
	before, after := h.states[len(h.states)-1], h.read()
	h.states = append(h.states, after)
	hold := interval{h.closed, h.now}
	if change == nil {
		change = &indexChange{}
	}
	if change.kind == changeReset {
		h.resetStates = append(h.resetStates, len(h.states)-1)
		h.resets = append(h.resets, hold)
		h.removals = append(h.removals, hold)
	}
	lost, entries := 0, int64(0)
	for id, was := range before.held {
		is := after.held[id]
		entries += truth(is != 0)
		ours := slices.Contains(change.ids, id)
		switch change.kind {
		case changeStore:
			evicted := h.bound > 0 && is == 0
			if want := was | 1<<change.place; is != was && !evicted && (!ours || is != want) {
				fail(fmt.Sprintf("a store to place %d changes key %d from %b to %b", change.place, id, was, is))
			}
		case changeEvict:
			if want := was &^ (1 << change.place); is != was && (!ours || is != want) {
				fail(fmt.Sprintf("an evict changes key %d from %b to %b", id, was, is))
			}
		case changeReset:
			if is != 0 {
				fail(fmt.Sprintf("key %d is there after a reset", id))
			}
		default:
			if is != was {
				fail(fmt.Sprintf("key %d changes from %b to %b, and nothing is changed", id, was, is))
			}
		}
		if was&^is != 0 {
			lost++
		}
		if was != 0 && is != 0 && before.link[id].sure && after.link[id] != before.link[id] {
			fail(fmt.Sprintf("the sure link of key %d changes", id))
		}
	}
	if change.lost += lost; lost > 0 && change.kind != changeReset {
		h.removals = append(h.removals, hold)
	}
	if h.bound > 0 && entries > h.bound {
		fail(fmt.Sprintf("%d entries, the bound is %d", entries, h.bound))
	}
}

// quietly checks that nothing has changed outside of a hold.
func (h *indexRun) quietly() {
	if h.x.mu.closed.value.Load() {
		return
	}
	last := h.states[len(h.states)-1]
	if h.large && slices.Equal(h.x.table.directory, last.directory) && len(h.x.segments) == last.lengths[0] {
		return
	}
	now := h.read()
	if !slices.Equal(now.directory, last.directory) || now.lengths != last.lengths || !slices.Equal(now.held, last.held) || !slices.Equal(now.link, last.link) || !slices.Equal(now.slot, last.slot) {
		fail("readers see a change that was not published")
	}
}

// write makes a change and returns the states that there were meanwhile.
func (h *indexRun) write(t *task, c *indexChange, do func()) []content {
	from := len(h.states) - 1
	h.changes[t] = c
	do()
	h.changes[t] = nil
	return h.states[from:]
}

// store stores keys as blocks number and so on of a chain.
func (h *indexRun) store(t *task, place, number int, ids []int) {
	var w Writer
	w.Number(uint32(number))
	var err error
	states := h.write(t, &indexChange{kind: changeStore, place: place, ids: ids}, func() {
		err = h.x.Store(&w, []int{place}, h.list(ids), interleaveLen)
	})
	if err != nil {
		fail(err.Error())
	}
	if number > 0 && uint32(number) != noNumber {
		h.x.Before(&w, h.key(ids[0]-1))
	}
	for _, id := range ids {
		if h.bound == 0 && !during(t, states, func(c content) bool { return c.held[id]>>place&1 == 1 }) {
			fail(fmt.Sprintf("key %d was never at place %d while it was stored there", id, place))
		}
	}
}

// evict evicts keys.
func (h *indexRun) evict(t *task, place int, ids []int) {
	c := &indexChange{kind: changeEvict, place: place, ids: ids}
	var n int
	var err error
	states := h.write(t, c, func() { n, err = h.x.Evict(place, h.list(ids), interleaveLen) })
	if err != nil {
		fail(err.Error())
	}
	if n != c.lost {
		fail(fmt.Sprintf("an evict tells of %d keys, and %d have lost the place", n, c.lost))
	}
	for _, id := range ids {
		if !during(t, states, func(c content) bool { return c.held[id]>>place&1 == 0 }) {
			fail(fmt.Sprintf("key %d was at place %d all the time while it was evicted", id, place))
		}
	}
}

func (h *indexRun) reset(t *task) {
	h.write(t, &indexChange{kind: changeReset}, h.x.Reset)
}

// refill makes the next store look for free slots from the log's beginning on.
func (h *indexRun) refill() { h.x.open = opening{} }

// during tells whether there was such a state during a call. Without a task, states are not
// followed.
func during(t *task, states []content, fits func(c content) bool) bool {
	return t == nil || slices.ContainsFunc(states, fits)
}

// happened tells whether one of the holds was between two moments: certainly, or perhaps.
func happened(holds []interval, from, to interval) (certain, possible bool) {
	for _, hold := range holds {
		certain = certain || hold.begin > from.end && hold.end < to.begin
		possible = possible || hold.end >= from.begin && hold.begin <= to.end
	}
	return certain, possible
}

// flag compares what a lookup is told with whether none of the holds was meanwhile.
func (h *indexRun) flag(what string, told bool, holds []interval, from, to interval) {
	certain, possible := happened(holds, from, to)
	possible = possible || h.x.mu.closed.value.Load() // one is under way
	if told && certain || !told && !possible {
		fail(fmt.Sprintf("%s is %v", what, told))
	}
}

// lookup looks keys up, in calls of so many, and finishes. The first call goes up to the first
// absent key if stop is set.
func (h *indexRun) lookup(t *task, ids []int, piece int, quiet bool) {
	c := Cursor{Quiet: quiet, Remember: true}
	begun := interval{begin: h.now}
	h.x.Begin(&c, interleaveLen)
	begun.end = h.now
	since := begun // what clean and stable are about
	var runs [8]Run
	var found []int
	for left := ids; len(left) > 0; {
		h.seen[t] = h.seen[t][:0]
		filled, covered, clean := h.x.Probe(&c, h.list(left[:min(piece, len(left))]), 1, runs[:], false)
		h.flag("clean", clean, h.resets, since, h.ended[t])
		states := h.statesSeen(t, clean)
		if !clean {
			since, found = h.ended[t], nil
		}
		at, n := 0, 0
		for _, r := range runs[:filled] {
			held := h.places(r.Coverage)
			for _, id := range left[n:min(n+r.N, len(left))] {
				for ; at < len(states) && states[at].held[id] != held; at++ {
				}
				if at == len(states) {
					fail(fmt.Sprintf("key %d is told to be at places %b, in none of the holds it was", id, held))
				}
				if held != 0 {
					found = append(found, id)
				}
			}
			n += r.N
		}
		if n != covered || n == 0 {
			fail("the runs do not cover the keys")
		}
		left = left[n:]
	}
	if h.found && len(found) > 0 {
		h.seen[t] = h.seen[t][:0]
		id := found[len(found)/2]
		cov := h.x.Found(&c, h.key(id))
		moved := slices.ContainsFunc(h.states, func(c content) bool { return c.slot[id] != h.states[0].slot[id] })
		if cov != nil || !moved {
			h.flag("what is found", cov != nil, h.removals, since, h.ended[t])
		}
		if cov != nil && h.places(cov) != h.statesSeen(t, true)[0].held[id] {
			fail(fmt.Sprintf("key %d is found at places %b", id, h.places(cov)))
		}
	}
	mark()
	ending := interval{begin: h.now}
	clean, stable := h.x.End(&c)
	ending.end = h.now
	h.flag("clean at the end", clean, h.resets, since, ending)
	h.flag("stable", stable, h.removals, since, ending)
}

// statesSeen returns the states in a task's holds; if a call was not clean, also those between.
func (h *indexRun) statesSeen(t *task, clean bool) (states []content) {
	seen := h.seen[t]
	if !clean {
		return h.states[:seen[len(seen)-1]+1]
	}
	for _, s := range seen {
		states = append(states, h.states[s])
	}
	return states
}

// trace traces the chain of the keys up to number last, in steps of so much work.
func (h *indexRun) trace(t *task, last, work int) {
	var trail Trail
	h.seen[t] = h.seen[t][:0]
	from := interval{h.now, h.now}
	down, done := h.x.Trace(&trail, h.key(last), uint32(last), work)
	for !done {
		down, done = h.x.ResumeTrace(&trail, work)
	}
	states := h.statesSeen(t, true)
	_, reset := happened(h.resets, from, interval{h.now, h.now})
	if down > 0 {
		if !reset && !during(t, states, func(c content) bool { return c.held[down-1] == 0 || !c.link[down-1].sure }) {
			fail(fmt.Sprintf("a trace ends at block %d, whose link was sure in all of its holds", down-1))
		}
		return
	}
	if first := h.seen[t][0]; h.resetBetween(first, h.seen[t][len(h.seen[t])-1]) {
		fail("a trace goes on behind a reset")
	}
	at, next := 0, last
	for _, r := range trail.Runs {
		if int(r.From+r.N) != next+1 {
			fail("the runs of a trace do not follow each other")
		}
		for ; next >= int(r.From); next-- {
			for ; at < len(states) && (states[at].held[next] != h.places(r.Coverage) || !states[at].link[next].sure); at++ {
			}
			if at == len(states) {
				fail(fmt.Sprintf("block %d is told to be at places %b, in none of the holds it was", next, h.places(r.Coverage)))
			}
		}
	}
	if next != -1 {
		fail("the runs of a trace do not cover the chain")
	}
}

// resetBetween tells whether one of the holds behind a state, up to another one, was a reset.
func (h *indexRun) resetBetween(first, last int) bool {
	return slices.ContainsFunc(h.resetStates, func(s int) bool { return s > first && s <= last })
}

// recite compares what is recited with the chain.
func (h *indexRun) recite(t *task, last, n int) {
	h.seen[t] = h.seen[t][:0]
	var trail Trail
	var before []byte
	if last-n >= 0 {
		before = h.key(last - n)
	}
	keys, ok := h.x.Recite(&trail, before, h.key(last), uint32(last), n)
	states := h.statesSeen(t, true)
	whole := func(state content) bool {
		return !slices.ContainsFunc(state.link[last-n+1:last+1], func(l link) bool { return !l.known })
	}
	some, all := slices.ContainsFunc(states, whole), !slices.ContainsFunc(states, func(c content) bool { return !whole(c) })
	if ok && !some || !ok && all || ok && string(keys) != string(h.keys[(last-n+1)*interleaveLen:(last+1)*interleaveLen]) {
		fail(fmt.Sprintf("blocks up to %d are recited: %v, they were there: %v, all the time: %v", last, ok, some, all))
	}
}

func (h *indexRun) confirm(t *task, first, n int) {
	var before []byte
	if first > 0 {
		before = h.key(first - 1)
	}
	keys := h.keys[first*interleaveLen : (first+n)*interleaveLen]
	var all bool
	states := h.write(t, &indexChange{}, func() { all, _ = h.x.Confirm(uint32(first), before, keys, interleaveLen) })
	for id := first; id < first+n; id++ {
		switch {
		case all && !during(t, states, func(c content) bool { return c.held[id] != 0 }):
			fail(fmt.Sprintf("key %d is confirmed and was absent", id))
		case !all && id == first+n-1:
			if !during(t, states, func(c content) bool { return slices.Contains(c.held[first:first+n], 0) }) {
				fail("not all is confirmed, and all was there")
			}
		}
	}
}

// finish looks all keys up once more.
func (h *indexRun) finish(t testing.TB) {
	last := h.states[len(h.states)-1]
	entries := int64(0)
	var c Cursor
	var runs [1]Run
	for id, held := range last.held {
		h.x.Begin(&c, interleaveLen)
		_, _, clean := h.x.Probe(&c, h.key(id), 1, runs[:], true)
		if entries += truth(held != 0); !clean || h.places(runs[0].Coverage) != held {
			fail(fmt.Sprintf("key %d is at places %b in the end, not %b", id, h.places(runs[0].Coverage), held))
		}
	}
	if n := h.x.Stats().Entries; n != entries {
		fail(fmt.Sprintf("%d entries are counted, there are %d", n, entries))
	}
	checkBooks(failing{t}, h.x)
}

// failing makes what is required a failure of the execution.
type failing struct{ testing.TB }

func (f failing) Errorf(format string, args ...any) { fail(fmt.Sprintf(format, args...)) }
func (f failing) FailNow()                          { fail("") }

// span returns the numbers from first to end-1.
func numbers(first, end int) (ids []int) {
	for id := first; id < end; id++ {
		ids = append(ids, id)
	}
	return ids
}

// indexTest is tasks on an index.
type indexTest struct {
	name       string
	keys       int
	maxEntries int64
	work       int  // see holdWork
	counters   bool // the loads and additions of epoch and removals are steps as well
	large      bool
	found      bool // lookups ask for what they have found
	writers    int  // 0: one
	touches    bool // lookups change the order of eviction
	prepare    func(h *indexRun, t *task)
	tasks      []func(h *indexRun, t *task)
	least      int // executions
}

func (c indexTest) world(t testing.TB, keys []byte) *world {
	h := newIndexRun(keys, c.maxEntries)
	h.large, h.found = c.large, c.found
	h.states = []content{h.read()}
	if c.prepare != nil {
		c.prepare(h, nil)
	}
	h.states = []content{h.read()}
	w := &world{did: h.did, check: h.quietly, finish: func() { h.finish(t) }}
	for i, run := range c.tasks {
		t := &task{name: fmt.Sprint("task ", i)}
		t.run = func() { run(h, t) }
		w.tasks = append(w.tasks, t)
	}
	w.yields = func(o operation) bool {
		switch object := o.object.(type) {
		case *syncInt32:
			return o.action == actAdd && o.value > 0
		case *syncMutex:
			return o.action != actUnlock && (object == &h.x.mu.writer || object == &h.x.writing.syncMutex && c.writers > 1)
		case *syncUint64:
			return c.counters
		}
		return false
	}
	if !c.counters {
		w.commute = func(a, b operation) bool { return c.commute(h, a, b) }
	}
	return w
}

// commute: readers change nothing, and writers only what is published, which quietly checks in
// every execution. A mark is where a lookup begins or ends, or a task.
func (c indexTest) commute(h *indexRun, a, b operation) bool {
	publishes := func(o operation) bool {
		return o.object == &h.x.mu.writer || o.action == actTryLock
	}
	reads := func(o operation) bool { return o.action == actAdd }
	takesTurn := func(o operation) bool { return o.object == &h.x.writing.syncMutex }
	switch {
	case publishes(a) || publishes(b) || takesTurn(a) && takesTurn(b):
		return false
	case reads(a) || reads(b):
		return true
	}
	return !c.touches
}

var indexTests = []indexTest{
	{
		name: "the first store", keys: 64, work: 1, least: 10,
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 64)) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 64), 64, true) },
		},
	},
	{
		name: "a group is evicted in part and filled again", keys: 160, found: true, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 128)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.evict(t, 0, numbers(10, 20))
				h.refill()
				h.store(t, 0, 0, numbers(128, 138))
				h.evict(t, 0, numbers(128, 130))
			},
			func(h *indexRun, t *task) {
				group := slices.Concat(numbers(0, 10), numbers(128, 138), numbers(20, 64))
				h.lookup(t, append(numbers(0, 64), group...), 64, true)
			},
		},
	},
	{
		name: "a whole group is evicted and filled again", keys: 192, work: 200, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 128)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.evict(t, 0, numbers(0, 64))
				h.refill()
				h.store(t, 0, 0, numbers(128, 192))
				h.store(t, 0, 0, numbers(0, 64))
			},
			func(h *indexRun, t *task) { h.lookup(t, append(numbers(64, 128), numbers(0, 64)...), 128, true) },
		},
	},
	{
		name: "a second place stores and evicts the same keys", keys: 128, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 128)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.store(t, 1, 0, numbers(0, 128))
				h.evict(t, 0, numbers(30, 40))
				h.store(t, 0, 0, numbers(30, 40))
			},
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 128), 100, true) },
		},
	},
	{
		name: "a group has two classes for a while", keys: 64, found: true, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 64)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.store(t, 1, 0, numbers(0, 32))
				h.store(t, 1, 32, numbers(32, 64))
				h.evict(t, 0, numbers(0, 64))
			},
			func(h *indexRun, t *task) { h.lookup(t, append(numbers(0, 64), numbers(0, 64)...), 64, true) },
		},
	},
	{
		name: "keys are moved", keys: 160, found: true, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) {
			for i := range 8 { // every eighth key
				var ids []int
				for id := i; id < 128; id += 8 {
					ids = append(ids, id)
				}
				h.store(t, 0, int(noNumber), ids)
			}
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.store(t, 0, 0, numbers(0, 64))
				h.refill()
				h.store(t, 0, 0, numbers(128, 160))
			},
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 64), 64, true) },
		},
	},
	{
		name: "a reset, and other keys come", keys: 128, touches: true, work: 100, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 64)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.reset(t)
				h.store(t, 0, 0, numbers(64, 128))
			},
			func(h *indexRun, t *task) { h.lookup(t, append(numbers(0, 64), numbers(32, 96)...), 70, false) },
		},
	},
	{
		name: "two writers", keys: 128, writers: 2, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 64)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 1, 0, numbers(0, 64)) },
			func(h *indexRun, t *task) {
				h.evict(t, 0, numbers(0, 32))
				h.store(t, 0, 0, numbers(0, 32))
			},
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 64), 64, true) },
		},
	},
	{
		name: "a store, an evict and a reset", keys: 64, writers: 3, work: 400, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 64)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 1, 0, numbers(0, 64)) },
			func(h *indexRun, t *task) { h.evict(t, 0, numbers(20, 64)) },
			func(h *indexRun, t *task) { h.reset(t) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 64), 64, true) },
		},
	},
	{
		name: "what is used longest ago makes way", keys: 256, found: true, maxEntries: 128, touches: true, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) {
			h.store(t, 0, 0, numbers(0, 64))
			h.store(t, 0, 0, numbers(64, 128))
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(128, 192)) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 64), 64, false) },
		},
	},
	{
		name: "holes are filled for want of spans", keys: 96, work: 1, least: 10,
		prepare: func(h *indexRun, t *task) {
			h.store(t, 0, 0, numbers(0, 96))
			for h.x.maxBytes = h.x.bytes(); !h.x.room(0, 0, 0); h.x.maxBytes += 1 << 10 { // too little for more spans
			}
			for h.x.unusedSpans > 2 {
				h.x.newSpan(mustSplit)
			}
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.evict(t, 0, []int{10, 20}) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 96), 96, true) },
		},
	},
	{
		name: "a trace meets changes", keys: 40, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) {
			for first := 30; first >= 0; first -= 10 {
				h.store(t, 0, first, numbers(first, first+10))
			}
			h.confirm(t, 0, 40)
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.evict(t, 0, numbers(14, 16))
				h.store(t, 0, 14, numbers(14, 16))
				h.confirm(t, 14, 2)
				h.store(t, 1, 0, numbers(0, 40))
			},
			func(h *indexRun, t *task) { h.trace(t, 39, 0) },
		},
	},
	{
		name: "a trace meets changes in one call", keys: 30, work: 1, least: 10,
		prepare: func(h *indexRun, t *task) {
			for first := 20; first >= 0; first -= 10 {
				h.store(t, 0, first, numbers(first, first+10))
			}
			h.confirm(t, 0, 20)
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.evict(t, 0, numbers(0, 20))
				h.refill()
				h.store(t, 0, 0, numbers(0, 20))
				h.confirm(t, 0, 20)
			},
			func(h *indexRun, t *task) { h.trace(t, 19, 1<<20) },
		},
	},
	{
		name: "a trace meets a reset, and all comes again", keys: 20, work: 1, least: 10,
		prepare: func(h *indexRun, t *task) {
			h.store(t, 0, 10, numbers(10, 20))
			h.store(t, 0, 0, numbers(0, 10))
			h.confirm(t, 0, 20)
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.reset(t)
				h.store(t, 0, 0, numbers(0, 20))
				h.confirm(t, 0, 20)
			},
			func(h *indexRun, t *task) { h.trace(t, 19, 1<<20) },
		},
	},
	{
		name: "a trace meets a reset and a confirmation", keys: 20, writers: 2, work: 1, least: 20,
		prepare: func(h *indexRun, t *task) {
			h.store(t, 0, 10, numbers(10, 20))
			h.store(t, 0, 0, numbers(0, 10))
			h.confirm(t, 10, 10)
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.confirm(t, 0, 20) },
			func(h *indexRun, t *task) { h.reset(t) },
			func(h *indexRun, t *task) { h.trace(t, 19, 0) },
			func(h *indexRun, t *task) { h.recite(t, 19, 15) },
		},
	},
	{
		name: "counters of removals and resets", keys: 8, work: usualHoldWork, counters: true, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 8)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) {
				h.evict(t, 0, numbers(3, 4))
				h.reset(t)
			},
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 8), 8, true) },
		},
	},
	{
		name: "counters while entries make way", keys: 12, maxEntries: 8, work: usualHoldWork, counters: true, least: 20,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, 8)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(8, 10)) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 8), 8, true) },
		},
	},
	{
		name: "more classes", keys: 24, work: 1, least: 10,
		prepare: func(h *indexRun, t *task) { // seven, as many as there is room for
			for id := range 7 {
				for place := range 3 {
					if (id+1)>>place&1 == 1 {
						h.store(t, place, 0, numbers(id, id+1))
					}
				}
			}
		},
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 3, 0, numbers(0, 7)) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(0, 7), 7, true) },
		},
	},
	{
		name: "a page is split", keys: 2240, work: 1, large: true, least: 10,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, pageFull-8)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(pageFull-8, pageFull+100)) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(pageFull-20, pageFull+50), 70, true) },
		},
	},
	{
		name: "the log grows", keys: 4160, work: 200, large: true, least: 10,
		prepare: func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(0, segmentSlots-6)) },
		tasks: []func(h *indexRun, t *task){
			func(h *indexRun, t *task) { h.store(t, 0, 0, numbers(segmentSlots-6, segmentSlots+50)) },
			func(h *indexRun, t *task) { h.lookup(t, numbers(segmentSlots-20, segmentSlots+60), 80, true) },
		},
	},
}

// TestInterleavedIndex runs stores, evicts, resets and lookups in every order of their holds.
func TestInterleavedIndex(t *testing.T) {
	for _, c := range indexTests {
		t.Run(c.name, func(t *testing.T) {
			lower(t, 1, c.work)
			keys := interleaveKeys(c.keys)
			e := explorer{make: func() *world { return c.world(t, keys) }, limit: 1 << 16}
			require.Empty(t, e.explore())
			t.Logf("%d executions, %d steps", e.executions, e.steps)
			require.GreaterOrEqual(t, e.executions, c.least)
		})
	}
}
