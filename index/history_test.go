package index_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A history is a list of operations on keys that are only numbered. Replayed under
// different settings it must tell the same; one that does not is shrunk before it
// is shown.

type opKind int

const (
	opStore opKind = iota
	opEvict
	opLookup
	opReset
	opResetPlaces // of place, and of the next one if fresh
)

type op struct {
	kind   opKind
	writer int      // store: which Writer; its chain continues unless fresh
	fresh  bool     // store: a new chain begins
	place  int      // store, evict
	length int      // which of the lengths of a setting the keys have
	ids    []uint16 // the keys; of a lookup also those that are strode over
	stride int      // lookup: asked are the keys 0, stride, 2*stride, ...
	stop   bool     // lookup: ends behind the first absent key
	quiet  bool     // lookup: does not count as use
	drop   bool     // lookup: is abandoned
	inner  []op     // lookup: happens when half of the keys are probed
}

const (
	numPlaces  = 4
	numWriters = 3
	numIDs     = 1 << 14
)

// String shows an operation on one line, the ids as ranges.
func (o op) String() string {
	var b strings.Builder
	switch o.kind {
	case opReset:
		return "reset"
	case opStore:
		fmt.Fprintf(&b, "store writer=%d fresh=%v place=%d", o.writer, o.fresh, o.place)
	case opEvict:
		fmt.Fprintf(&b, "evict place=%d", o.place)
	case opResetPlaces:
		return fmt.Sprintf("reset places=%v", o.places())
	case opLookup:
		fmt.Fprintf(&b, "lookup stride=%d stop=%v quiet=%v drop=%v", o.stride, o.stop, o.quiet, o.drop)
	}
	fmt.Fprintf(&b, " length=%d keys=", o.length)
	for i := 0; i < len(o.ids); {
		j := i + 1
		for j < len(o.ids) && o.ids[j] == o.ids[j-1]+1 {
			j++
		}
		fmt.Fprintf(&b, "%d", o.ids[i])
		if j > i+1 {
			fmt.Fprintf(&b, "..%d", o.ids[j-1])
		}
		if i = j; i < len(o.ids) {
			b.WriteByte(',')
		}
	}
	for _, in := range o.inner {
		fmt.Fprintf(&b, "\n        half-way: %v", in)
	}
	return b.String()
}

// places are those of opResetPlaces.
func (o op) places() []int {
	if o.fresh {
		return []int{o.place, (o.place + 1) % numPlaces}
	}
	return []int{o.place}
}

func showHistory(ops []op) string {
	var b strings.Builder
	for i, o := range ops {
		fmt.Fprintf(&b, "  %3d %v\n", i, o)
	}
	return b.String()
}

// appendKey appends the key of an id: hashLen bytes, at least 8, different for
// different ids. Half of the keys share all bytes but four, first or last.
func appendKey(b []byte, id uint16, hashLen int) []byte {
	n := len(b)
	b = append(b, make([]byte, hashLen)...)
	switch key := b[n:]; id % 4 {
	case 0:
		binary.BigEndian.PutUint32(key[hashLen-4:], uint32(id))
	case 1:
		binary.LittleEndian.PutUint32(key, uint32(id))
	default:
		random := rand.NewPCG(uint64(id), 0)
		for len(key) > 0 {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], random.Uint64())
			key = key[copy(key, word[:]):]
		}
	}
	return b
}

// generator makes a history.
type generator struct {
	*rand.Rand
	next     uint16 // the next id that no chain has
	longest  int    // of chains
	previous [][]uint16
}

// randomHistory returns the history of a seed. One in twenty has long chains, which
// lie across segments and batches, but fewer operations.
func randomHistory(seed uint64) []op {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), longest: 40}
	n := 20 + g.IntN(60)
	if g.IntN(20) == 0 {
		g.longest, n = 6000, 8+g.IntN(10)
	}
	ops := make([]op, n)
	for i := range ops {
		ops[i] = g.op(true)
	}
	return ops
}

func (g *generator) op(outer bool) op {
	o := op{place: g.IntN(numPlaces), stride: 1}
	if g.IntN(5) == 0 {
		o.length = 1
	}
	switch n := g.IntN(40); {
	case n < 16:
		o.kind, o.writer, o.fresh = opStore, g.IntN(numWriters), g.IntN(3) > 0
		if len(g.previous) > 0 && g.IntN(3) == 0 {
			g.grow(&o)
		} else {
			o.ids = g.stored()
		}
	case n < 22:
		o.kind = opEvict
		o.ids = g.stretch()
	case n < 37:
		o.kind, o.stop, o.quiet, o.drop = opLookup, g.IntN(2) == 0, g.IntN(4) == 0, g.IntN(10) == 0
		o.ids, o.stride = g.asked()
		for outer && g.IntN(3) == 0 {
			o.inner = append(o.inner, g.op(false))
		}
	case n < 39:
		o.kind, o.fresh = opResetPlaces, g.IntN(2) == 0
	default:
		o.kind = opReset
	}
	return o
}

// size is a length of a chain, more often short.
func (g *generator) size() int { return 1 + g.IntN(1+g.IntN(g.longest)) }

// fresh appends n ids that follow each other and are new until ids run out.
func (g *generator) fresh(ids []uint16, n int) []uint16 {
	for range n {
		ids = append(ids, g.next)
		g.next = (g.next + 1) % numIDs
	}
	return ids
}

// stretch is a piece of a chain that was stored, as a rule.
func (g *generator) stretch() []uint16 {
	if len(g.previous) == 0 {
		return g.fresh(nil, g.size())
	}
	c := g.previous[g.IntN(len(g.previous))]
	from := g.IntN(len(c))
	to := from + 1 + g.IntN(len(c)-from)
	if g.IntN(2) == 0 {
		from = 0
	}
	return slices.Clone(c[from:to])
}

// stored is what a store brings: a new chain, one that repeats, forks from or
// overlaps another, or keys in disorder.
func (g *generator) stored() (ids []uint16) {
	switch g.IntN(8) {
	case 0, 1, 2:
		ids = g.fresh(nil, g.size())
	case 3, 4:
		ids = g.fresh(g.stretch(), g.size())
	case 5:
		ids = g.stretch()
	case 6:
		ids = append(g.stretch(), g.stretch()...)
	default:
		ids = g.stretch()
		g.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	}
	g.previous = append(g.previous, ids)
	return ids
}

// grow makes a store add a few keys to a chain, as an engine does that decodes.
func (g *generator) grow(o *op) {
	i := g.IntN(min(len(g.previous), 8))
	o.fresh, o.ids = true, g.fresh(nil, 1+g.IntN(1+g.IntN(20)))
	g.previous[i] = append(slices.Clone(g.previous[i]), o.ids...)
}

// asked is what a lookup brings: stored stretches with other keys among them, and
// the stride, with which others lie between.
func (g *generator) asked() (raw []uint16, stride int) {
	ids := g.stretch()
	for g.IntN(3) == 0 {
		ids = append(ids, g.stretch()...)
	}
	for g.IntN(2) == 0 {
		ids[g.IntN(len(ids))] = uint16(g.IntN(numIDs))
	}
	stride = 1
	if g.IntN(3) == 0 {
		stride += g.IntN(4)
	}
	for _, id := range ids {
		raw = append(raw, id)
		for range stride - 1 {
			raw = append(raw, ids[g.IntN(len(ids))])
		}
	}
	return raw[:len(raw)-g.IntN(stride)], stride
}

// shrink returns a part of a failing history that fails still. It takes away
// operations and then keys, ever smaller pieces of them, until none can be spared
// or the time is over.
func shrink(ops []op, fails func([]op) bool, until time.Time) []op {
	for again := true; again && time.Now().Before(until); {
		ops, again = spare(ops, fails, until)
		for i := range ops {
			with := func(o op) []op {
				changed := slices.Clone(ops)
				changed[i] = o
				return changed
			}
			inner, some := spare(ops[i].inner, func(in []op) bool {
				o := ops[i]
				o.inner = in
				return fails(with(o))
			}, until)
			ops[i].inner, again = inner, again || some
			ids, some := spare(ops[i].ids, func(ids []uint16) bool {
				o := ops[i]
				o.ids = ids
				return fails(with(o))
			}, until)
			ops[i].ids, again = ids, again || some
		}
	}
	return ops
}

// spare takes pieces out of a list for as long as it fails without them. It tells
// whether any could be spared.
func spare[T any](list []T, fails func([]T) bool, until time.Time) ([]T, bool) {
	before := len(list)
	for size := len(list); size > 0; size /= 2 {
		for at := 0; at < len(list) && time.Now().Before(until); {
			without := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if fails(without) {
				list = without
			} else {
				at += size
			}
		}
	}
	return list, len(list) < before
}
