package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// sureChain returns an index that holds a chain, confirmed as far as it is known.
func sureChain(t testing.TB, n int) (*Index, []byte) {
	x, keys := mustNew(t, Config{Places: 2, Groups: [][]int{{0}, {1}, {0, 1}}}), chain(1, n, 32)
	storeAt(t, x, 0, 0, nil, keys)
	x.Confirm(0, nil, keys, 32)
	return x, keys
}

// traceAll runs a whole trace in steps of any size.
func traceAll(x *Index, t *Trail, key []byte, number uint32) uint32 {
	work := int(number*7919) % 300
	down, done := x.Trace(t, key, number, work)
	for !done {
		down, done = x.ResumeTrace(t, work)
	}
	return down
}

// traceCases are, by name, what is done with a chain of ten sure keys, the key that is traced, and
// where the trace ends.
type traceCases map[string]struct {
	do     func(t *testing.T, x *Index, keys []byte)
	key    int // of the chain
	number uint32
	down   uint32
}

func (cases traceCases) run(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			x, keys := sureChain(t, 10)
			if c.do != nil {
				c.do(t, x, keys)
			}
			var trail Trail
			down := traceAll(x, &trail, cut(keys, c.key, c.key+1), c.number)
			require.Equal(t, c.down, down)
			if down == 0 {
				requireRuns(t, trail.Runs, int(c.number)+1)
			}
		})
	}
}

func TestTrace(t *testing.T) {
	inPieces := func(t *testing.T, x *Index, keys []byte) { // 0 to 4 and 5 to 9, each linked run with a head
		x.Reset()
		storeAt(t, x, 0, 5, cut(keys, 4, 5), keys[5*32:])
		storeAt(t, x, 0, 0, nil, cut(keys, 0, 5))
		x.Confirm(0, nil, keys, 32)
	}
	traceCases{
		"the last":                          {nil, 9, 9, 0},
		"in the middle":                     {nil, 4, 4, 0},
		"the first":                         {nil, 0, 0, 0},
		"a key that is not here":            {func(t *testing.T, x *Index, keys []byte) { evict(t, x, 0, cut(keys, 9, 10), 32) }, 9, 9, 10},
		"under a higher number":             {nil, 4, 5, 6},
		"under a lower number":              {nil, 4, 3, 4},
		"under number 0":                    {nil, 4, 0, 1},
		"the first under number 1":          {nil, 0, 1, 2},
		"in pieces":                         {inPieces, 9, 9, 0},
		"in pieces, under a higher number":  {inPieces, 9, 11, 12},
		"in pieces, under a lower number":   {inPieces, 9, 8, 9},
		"in pieces, 0 where its run begins": {inPieces, 7, 2, 3},
		"in pieces, 0 inside its run":       {inPieces, 7, 1, 2},
		"no number is known": {func(t *testing.T, x *Index, keys []byte) {
			x.Reset()
			store(t, x, keys, 32)
			x.Confirm(0, nil, keys, 32)
		}, 9, 9, 10},
		"evicted below":        {func(t *testing.T, x *Index, keys []byte) { evict(t, x, 0, cut(keys, 3, 5), 32) }, 9, 9, 5},
		"the first is evicted": {func(t *testing.T, x *Index, keys []byte) { evict(t, x, 0, cut(keys, 0, 1), 32) }, 9, 9, 1},
		"an open end": {func(t *testing.T, x *Index, keys []byte) {
			x.Reset()
			storeAt(t, x, 0, 5, nil, keys[5*32:])
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 5))
			x.Confirm(0, nil, keys, 32)
		}, 9, 9, 6},
	}.run(t)
}

func TestTraceEndsAtUnsureLinks(t *testing.T) {
	unsure := func(t *testing.T, x *Index, keys []byte, at int) { // says the same again of an entry that is new
		evict(t, x, 0, cut(keys, at, at+1), 32)
		storeAt(t, x, 0, uint32(at), cut(keys, at-1, at), cut(keys, at, at+1))
	}
	traceCases{
		"nobody has looked it up": {func(t *testing.T, x *Index, keys []byte) {
			x.Reset()
			storeAt(t, x, 0, 0, nil, keys)
		}, 9, 9, 10},
		"not sure below": {func(t *testing.T, x *Index, keys []byte) { unsure(t, x, keys, 4) }, 9, 9, 5},
		"the first is not sure": {func(t *testing.T, x *Index, keys []byte) {
			x.Reset()
			storeAt(t, x, 0, 0, nil, keys)
			x.Confirm(1, cut(keys, 0, 1), keys[32:], 32)
		}, 9, 9, 1},
		"not sure inside a run": {func(t *testing.T, x *Index, keys []byte) {
			x.Reset()
			storeAt(t, x, 0, 0, nil, keys)
			x.Confirm(0, nil, cut(keys, 0, 4), 32)
			x.Confirm(5, cut(keys, 4, 5), keys[5*32:], 32)
		}, 9, 9, 5},
		"not sure inside a run, under a number that ends there": {func(t *testing.T, x *Index, keys []byte) {
			x.Reset()
			storeAt(t, x, 0, 0, nil, keys)
			x.Confirm(5, cut(keys, 4, 5), keys[5*32:], 32)
		}, 9, 4, 5},
		"the key itself is not sure": {func(t *testing.T, x *Index, keys []byte) { unsure(t, x, keys, 9) }, 9, 9, 10},
		"sure again": {func(t *testing.T, x *Index, keys []byte) {
			unsure(t, x, keys, 4)
			x.Confirm(4, cut(keys, 3, 4), cut(keys, 4, 5), 32)
		}, 9, 9, 0},
	}.run(t)
}

// TestTraceTellsCoverage stores parts of a chain in a second place.
func TestTraceTellsCoverage(t *testing.T) {
	const n = 20
	x, keys := sureChain(t, n)
	store2 := func(from, end int) {
		var w Writer
		require.NoError(t, x.Store(&w, []int{1}, cut(keys, from, end), 32))
	}
	store2(0, 3)
	store2(7, 8)
	var trail Trail
	require.Zero(t, traceAll(x, &trail, cut(keys, n-1, n), n-1))
	var complete []uint64
	for i := len(trail.Runs) - 1; i >= 0; i-- {
		r := trail.Runs[i]
		require.EqualValues(t, len(complete), r.From)
		for range r.N {
			complete = append(complete, r.Coverage.Complete)
		}
	}
	want := slices.Repeat([]uint64{1}, n)
	for _, i := range []int{0, 1, 2, 7} {
		want[i] = 7
	}
	require.Equal(t, want, complete)
	require.Len(t, trail.Runs, 4)
	x.Use(&trail)
	require.Empty(t, trail.Runs)
}

// TestTraceOfLongChains follows a chain through many segments, and one in more
// pieces than are worth following.
func TestTraceOfLongChains(t *testing.T) {
	n := 3*segmentSlots + 77
	x, keys := sureChain(t, n)
	var trail Trail
	for _, number := range []int{n - 1, segmentSlots, segmentSlots - 1, 64, 63} {
		require.Zero(t, traceAll(x, &trail, cut(keys, number, number+1), uint32(number)), "from block %d", number)
		requireRuns(t, trail.Runs, number+1)
	}
	x.Use(&trail)
	require.NotNil(t, trail.Runs, "an ordinary trail keeps its memory")

	pieces := trailRuns + 2*segmentSlots // each second key has another coverage
	x, keys = sureChain(t, pieces)
	for i := 0; i < pieces; i += 2 {
		var w Writer
		require.NoError(t, x.Store(&w, []int{1}, cut(keys, i, i+1), 32))
	}
	down := traceAll(x, &trail, cut(keys, pieces-1, pieces), uint32(pieces-1))
	require.Positive(t, down)
	require.Less(t, down, uint32(2*segmentSlots))
	found := slices.Clone(trail.found)
	trail.Taken()
	require.Nil(t, trail.Runs, "a large one gives it back")
	require.LessOrEqual(t, cap(trail.found), 2*maxStretches)
	require.Equal(t, found[len(found)-1], trail.found[0], "the chain's beginning was used first")
}

// TestUseKeepsFromEviction looks a chain up by its last key only, and stores more
// than fits beside it.
func TestUseKeepsFromEviction(t *testing.T) {
	for _, used := range []bool{true, false} {
		x := mustNew(t, onePlace(1000))
		keys := chain(1, 100, 32)
		storeAt(t, x, 0, 0, nil, keys)
		x.Confirm(0, nil, keys, 32)
		for i := range uint64(19) {
			var trail Trail
			if used {
				require.Zero(t, traceAll(x, &trail, cut(keys, 99, 100), 99))
				trail.Taken()
				require.Empty(t, trail.Runs)
				x.Use(&trail)
			}
			store(t, x, chain(2+i, 50, 32), 32)
		}
		leading, _ := probe(x, keys, 32, 100, true)
		require.Equal(t, used, leading == 100, "%d blocks are left", leading)
	}
}

// TestTraceOfEqualHashes lets block 3 of several chains have one hash, and evicts
// the one that is looked for.
func TestTraceOfEqualHashes(t *testing.T) {
	x := mustNew(t, onePlace(0))
	h, equal := newHasher(), map[string]bool{}
	x.badHash = func(key []byte) uint64 {
		if equal[string(key)] {
			return 7
		}
		return h.sum(key)
	}
	add := func(seed uint64) []byte {
		keys := chain(seed, 8, 32)
		equal[string(cut(keys, 3, 4))] = true
		storeAt(t, x, 0, 0, nil, keys)
		require.True(t, confirm(x, 0, nil, keys, 32))
		return keys
	}
	keys := add(0)
	var trail Trail
	require.Zero(t, traceAll(x, &trail, cut(keys, 7, 8), 7))
	add(1)
	add(2)
	require.Zero(t, traceAll(x, &trail, cut(keys, 7, 8), 7), "in one linked run the hash is not needed")
	evict(t, x, 0, cut(keys, 3, 4), 32)
	require.EqualValues(t, 4, traceAll(x, &trail, cut(keys, 7, 8), 7))
}

func TestRecite(t *testing.T) {
	const n = 100
	keys, other := chain(1, n, 32), chain(2, n, 32)
	var trail Trail
	for name, c := range map[string]struct {
		do       func(x *Index)
		from, to int // blocks from to to-1 are asked
		number   int // of the last; 0 for to-1
		before   []byte
		ok       bool
	}{
		"all":                    {nil, 0, n, 0, nil, true},
		"the first":              {nil, 0, 1, 0, nil, true},
		"the end":                {nil, 30, n, 0, cut(keys, 29, 30), true},
		"the beginning, and any": {nil, 0, 50, 0, cut(other, 0, 1), true},
		"behind another key":     {nil, 30, n, 0, cut(keys, 28, 29), false},
		"behind no key":          {nil, 30, n, 0, nil, false},
		"under another number":   {nil, 30, n, n, cut(keys, 29, 30), false},
		"under a lower number":   {nil, 30, n, n - 2, cut(keys, 29, 30), false},
		"more than there are":    {nil, 0, 50, 48, nil, false},
		"an evicted key": {func(x *Index) { _, _ = x.Evict(0, cut(keys, 50, 51), 32) },
			30, n, 0, cut(keys, 29, 30), false},
		"behind an evicted key": {func(x *Index) { _, _ = x.Evict(0, cut(keys, 29, 30), 32) },
			30, n, 0, cut(keys, 29, 30), true},
		"through an open end": {func(x *Index) {
			x.Reset()
			storeAt(t, x, 0, 50, nil, cut(keys, 50, n))
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 50))
		}, 30, n, 0, cut(keys, 29, 30), false},
		"behind an open end": {func(x *Index) {
			x.Reset()
			storeAt(t, x, 0, 50, nil, cut(keys, 50, n))
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 50))
		}, 50, n, 0, cut(keys, 49, 50), false},
		"in pieces": {func(x *Index) {
			x.Reset()
			storeAt(t, x, 0, 50, cut(keys, 49, 50), cut(keys, 50, n))
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 50))
		}, 30, n, 0, cut(keys, 29, 30), true},
		"of no number": {func(x *Index) {
			x.Reset()
			store(t, x, keys, 32)
		}, 30, n, 0, cut(keys, 29, 30), false},
	} {
		t.Run(name, func(t *testing.T) {
			x := mustNew(t, onePlace(0))
			storeAt(t, x, 0, 0, nil, keys)
			if c.do != nil {
				c.do(x)
			}
			number := c.number
			if number == 0 {
				number = c.to - 1
			}
			got, ok := x.Recite(&trail, c.before, cut(keys, c.to-1, c.to), uint32(number), c.to-c.from)
			require.Equal(t, c.ok, ok)
			if ok {
				require.Equal(t, cut(keys, c.from, c.to), got)
			}
		})
	}
	x := mustNew(t, onePlace(0))
	long := chain(3, MaxRecital+1, 32)
	storeAt(t, x, 0, 0, nil, long)
	for _, count := range []int{-1, 0, MaxRecital + 1} {
		_, ok := x.Recite(&trail, nil, cut(long, MaxRecital, MaxRecital+1), MaxRecital, count)
		require.False(t, ok, count)
	}
	got, ok := x.Recite(&trail, cut(long, 0, 1), cut(long, MaxRecital, MaxRecital+1), MaxRecital, MaxRecital)
	require.True(t, ok)
	require.Equal(t, cut(long, 1, MaxRecital+1), got)
	trail.Drop()
	require.Nil(t, trail.keys, "large memory is given back")
}

func TestTraceDoesNotAllocate(t *testing.T) {
	skipIfBuildAllocates(t)
	x, keys := sureChain(t, 5000)
	var trail Trail
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if traceAll(x, &trail, cut(keys, 4999, 5000), 4999) != 0 {
			t.Error("the chain is not followed")
		}
		if _, ok := x.Recite(&trail, cut(keys, 4899, 4900), cut(keys, 4999, 5000), 4999, 100); !ok {
			t.Error("the chain is not recited")
		}
		x.Use(&trail)
		x.applyTouches(touchMost)
		x.Confirm(0, nil, keys, 32)
	}))
}

// chainModel is what an index should know of chains, by key.
type chainModel struct {
	*rand.Rand
	t      testing.TB
	x      *Index
	chains [][]byte
	keys   []string // all of them
	known  map[string]*modelEntry
	log    []string
}

type modelEntry struct {
	places int // bit by place
	link   modelLink
	either *modelLink // is as good, where the key's neighbour in the log decides
}

type modelLink struct {
	known, open, sure bool
	number            uint32
	before            string
}

// newChainModel has chains that leave each other, and one of keys of all of them.
func newChainModel(t testing.TB, seed uint64) *chainModel {
	m := &chainModel{Rand: rand.New(rand.NewPCG(seed, 0)), t: t, known: map[string]*modelEntry{}}
	m.x = mustNew(t, Config{Places: 2, Groups: [][]int{{0}, {1}}})
	for i := range uint64(3) {
		keys := chain(seed<<4+i, 20+m.IntN(60), 32)
		if i > 0 {
			keys = append(slices.Clone(m.chains[i-1][:m.IntN(20)*32]), keys...)
		}
		m.chains = append(m.chains, keys)
	}
	seen := map[string]bool{}
	for _, c := range m.chains {
		for i := range len(c) / 32 {
			if key := string(cut(c, i, i+1)); !seen[key] {
				seen[key], m.keys = true, append(m.keys, key)
			}
		}
	}
	var mixed []byte
	for _, i := range m.Perm(len(m.keys)) {
		mixed = append(mixed, m.keys[i]...)
	}
	m.chains = append(m.chains, mixed)
	return m
}

func (m *chainModel) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// stretch picks a part of a chain, and mostly the truth about it.
func (m *chainModel) stretch() (c, from, end int, number uint32, before []byte) {
	c = m.IntN(len(m.chains))
	n := len(m.chains[c]) / 32
	from = m.IntN(2) * m.IntN(n)
	end = from + 1 + m.IntN(n-from)
	if number = uint32(from); from > 0 {
		before = cut(m.chains[c], from-1, from)
	}
	switch m.IntN(10) {
	case 0:
		number = uint32(m.IntN(30))
	case 1:
		before = []byte(m.keys[m.IntN(len(m.keys))])
	case 2:
		before = nil
	}
	return c, from, end, number, before
}

// store stores in pieces, with or without a number.
func (m *chainModel) store() {
	c, from, end, number, before := m.stretch()
	place, keys := m.IntN(2), cut(m.chains[c], from, end)
	numbered := m.IntN(6) > 0
	m.note("store place %d chain %d %d:%d number %d %v before %x", place, c, from, end, number, numbered, before)
	singly, first := m.IntN(3) == 0, m.IntN(2) == 0
	var w Writer
	if numbered {
		w.Number(number)
	}
	if singly || first {
		w.Behind(before)
	}
	for rest := keys; len(rest) > 0; {
		n := 1 + m.IntN(len(rest)/32)
		if singly {
			n = 1
		}
		require.NoError(m.t, m.x.Store(&w, []int{place}, rest[:n*32], 32))
		last := rest[(n-1)*32 : n*32]
		if rest = rest[n*32:]; singly {
			next := number + uint32((len(keys)-len(rest))/32)
			if w = (Writer{}); numbered {
				w.Number(next)
			}
			w.Behind(last)
		}
	}
	if !singly && !first {
		m.x.Before(&w, before)
	}
	for i := range len(keys) / 32 {
		key, said := string(cut(keys, i, i+1)), modelLink{known: true, number: number + uint32(i)}
		if m.known[key] == nil {
			m.known[key] = &modelEntry{}
		}
		m.known[key].places |= 1 << place
		if said.open = i == 0 && number > 0; i > 0 {
			said.before = string(cut(keys, i-1, i))
		}
		if numbered {
			m.known[key].claim(said, i > 0 && !singly)
		}
	}
	if numbered && number > 0 && len(before) > 0 {
		m.known[string(keys[:32])].claim(modelLink{known: true, number: number, before: string(before)}, false)
	}
}

// claim is what the index makes of what a store says.
func (e *modelEntry) claim(said modelLink, mayStay bool) {
	have := e.link
	same := have.known && have.before == said.before && !have.open
	switch {
	case have.sure, have.known && have.number == said.number && (said.open || same):
		return
	case mayStay && same:
		e.either = &have
	}
	e.link = said
}

func (m *chainModel) evict() {
	c, from, end, _, _ := m.stretch()
	if m.IntN(2) == 0 {
		end = min(end, from+3)
	}
	place := m.IntN(2)
	m.note("evict place %d chain %d %d:%d", place, c, from, end)
	_, err := m.x.Evict(place, cut(m.chains[c], from, end), 32)
	require.NoError(m.t, err)
	for i := from; i < end; i++ {
		key := string(cut(m.chains[c], i, i+1))
		if e := m.known[key]; e != nil {
			if e.places &^= 1 << place; e.places == 0 {
				delete(m.known, key)
			}
		}
	}
}

func (m *chainModel) confirm() {
	c, from, end, number, before := m.stretch()
	m.note("confirm chain %d %d:%d number %d before %x", c, from, end, number, before)
	keys := cut(m.chains[c], from, end)
	m.x.Confirm(number, before, keys, 32)
	if number > 0 && len(before) == 0 {
		return
	}
	for i := range len(keys) / 32 {
		key, at := string(cut(keys, i, i+1)), number+uint32(i)
		e := m.known[key]
		if e == nil {
			return
		}
		l := &e.link
		l.sure = l.sure || l.known && l.number == at && (at == 0 || !l.open && l.before == string(before))
		before = []byte(key)
	}
}

// check compares what is known of every key, and what is found along the links.
func (m *chainModel) check() {
	var trail Trail
	for _, key := range m.keys {
		s := m.x.find(m.x.hash([]byte(key)), []byte(key))
		e := m.known[key]
		if (e != nil) != (s != noSlot) {
			m.t.Fatalf("key %x: there: %v\n%s", key, s != noSlot, m.log)
		}
		if e == nil {
			continue
		}
		have := m.x.linkOf(s)
		if e.either != nil && m.equal(have, *e.either) {
			e.link = *e.either
		}
		e.either = nil
		if !m.equal(have, e.link) {
			m.t.Fatalf("key %x: %+v is known, and should be %+v\n%s", key, have, e.link, m.log)
		}
	}
	for range 10 {
		key, number := m.keys[m.IntN(len(m.keys))], uint32(m.IntN(100))
		if e := m.known[key]; e != nil && m.IntN(4) > 0 {
			number = e.link.number
		}
		down, places := m.trace(key, number)
		if got := traceAll(m.x, &trail, []byte(key), number); got != down {
			m.t.Fatalf("trace of %x, number %d: %d, should be %d\n%s", key, number, got, down, m.log)
		}
		if down > 0 {
			continue
		}
		requireRuns(m.t, trail.Runs, len(places))
		for _, r := range trail.Runs {
			for i := range r.N {
				if int(r.Coverage.Complete) != places[r.From+i] {
					m.t.Fatalf("trace of %x: places of block %d: %b, should be %b\n%s", key, r.From+i, r.Coverage.Complete, places[r.From+i], m.log)
				}
			}
		}
	}
}

func (m *chainModel) equal(have link, want modelLink) bool {
	if have.known != want.known || !have.known {
		return have.known == want.known
	}
	return have.number == want.number && have.sure == want.sure && have.open == want.open &&
		(have.open || have.number == 0 || have.before == m.x.hash([]byte(want.before)))
}

// trace is what Trace should return, and the places that hold each block.
func (m *chainModel) trace(key string, number uint32) (down uint32, places []int) {
	for {
		e := m.known[key]
		if e == nil || !e.link.sure || e.link.number != number {
			return number + 1, nil
		}
		places = append(places, e.places)
		if number == 0 {
			slices.Reverse(places)
			return 0, places
		}
		key, number = e.link.before, number-1
	}
}

// TestLinksAgainstModel compares an index with a map after every step of random
// histories.
func TestLinksAgainstModel(t *testing.T) {
	histories := uint64(150)
	if raceEnabled || testing.Short() {
		histories = 20
	}
	for seed := range histories {
		m := newChainModel(t, seed)
		for range 60 {
			switch n := m.IntN(100); {
			case n < 45:
				m.store()
			case n < 65:
				m.evict()
			case n < 99:
				m.confirm()
			default:
				m.note("reset")
				m.x.Reset()
				clear(m.known)
			}
			m.check()
		}
		checkLinks(t, m.x)
		checkBooks(t, m.x)
	}
}
