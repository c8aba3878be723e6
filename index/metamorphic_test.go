package index_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/simd"
)

// seedVariable names the environment variable that gives the one history to
// replay.
const seedVariable = "HITLINE_TEST_SEED"

// TestMetamorphic replays random histories, each under many settings, and compares
// all that the index tells with a plain map. Where the index is bounded, it may
// know less than the map but nothing else.
func TestMetamorphic(t *testing.T) {
	kernel := simd.Kernel()
	t.Cleanup(func() { require.NoError(t, simd.Force(kernel)) })
	if given := os.Getenv(seedVariable); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, seedVariable)
		metamorphic(t, seed)
		return
	}
	limit := 3 * time.Second
	if testing.Short() || index.RaceEnabled {
		limit = time.Second
	}
	n := 0
	for start := time.Now(); n < 10 || time.Since(start) < limit; n++ {
		metamorphic(t, rand.Uint64()>>32) // short enough to type
	}
	t.Logf("%d histories", n)
}

// metamorphic replays the history of a seed. The settings come from the seed too;
// what the index draws for its hash does not.
func metamorphic(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	ops := randomHistory(seed)
	for i := range 9 {
		s := randomSetting(rng, i%3 == 2)
		s.t = t
		err := s.replay(ops)
		if err == nil {
			continue
		}
		ops = shrink(ops, func(ops []op) bool { return s.replay(ops) != nil }, time.Now().Add(10*time.Second))
		if last := s.replay(ops); last != nil {
			err = last
		}
		t.Fatalf("%v\n%s=%d, setting %+v, history shrunk to:\n%s", err, seedVariable, seed, s, showHistory(ops))
	}
}

// setting is what must not change the answers.
type setting struct {
	maxEntries int64
	bounded    bool // maxEntries is small enough to matter
	kernel     string
	lens       [2]int // of keys
	given      bool   // the index is told that its keys have the first length
	chunk      int    // keys a call of Store and Evict, 0 for all
	piece      int    // keys a call of Probe, those strode over included
	runs       int
	bytes      bool                    // groups are compared key by key
	hash       func(key []byte) uint64 // one that does not spread, or nil
	t          testing.TB
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// badHashes do not spread.
var badHashes = []func(key []byte) uint64{
	func([]byte) uint64 { return 0 },
	func([]byte) uint64 { return ^uint64(0) },
	func(key []byte) uint64 { return uint64(key[0]&3) << 62 },
}

func randomSetting(rng *rand.Rand, bounded bool) setting {
	s := setting{
		maxEntries: pick[int64](rng, 0, 1<<20),
		bounded:    bounded,
		kernel:     pick(rng, simd.Kernels()...),
		chunk:      pick(rng, 0, 1, 3, 64),
		piece:      pick(rng, 1, 7, 64, 2048),
		runs:       pick(rng, 1, 2, 64),
		bytes:      pick(rng, false, false, true),
	}
	if bounded {
		s.maxEntries = pick[int64](rng, 1, 2, 5, 20, 37, 100, 1000)
		if rng.IntN(2) == 0 { // a page has no room for more of one hash
			s.hash = badHashes[rng.IntN(len(badHashes))]
		}
	}
	lens := []int{8, 16, 20, 32, 33, 64}
	rng.Shuffle(len(lens), func(i, j int) { lens[i], lens[j] = lens[j], lens[i] })
	copy(s.lens[:], lens)
	s.given = rng.IntN(2) == 0
	return s
}

// groups has one group for each place, so that the counts tell the places, and
// some of several.
var groups = [][]int{{0}, {1}, {2}, {3}, {0, 1}, {3, 2}, {0, 1, 2, 3}}

// places is a set of places, the first in the lowest bit.
type places uint8

// read returns the places of a coverage and fails if it contradicts itself.
func read(cov *index.Coverage) (held places, err error) {
	if cov == nil {
		return 0, nil
	}
	for p := range numPlaces {
		held |= places(cov.Counts[p]&1) << p
	}
	for g, required := range groups {
		count := 0
		for _, p := range required {
			count += int(held >> p & 1)
		}
		if int(cov.Counts[g]) != count || cov.Complete>>g&1 == 1 != (count == len(required)) || held == 0 {
			return held, fmt.Errorf("counts %v and complete %b contradict each other", cov.Counts, cov.Complete)
		}
	}
	return held, nil
}

// model is where each key is held, and how many are held anywhere: by length and
// id.
type model struct {
	held    [2][numIDs]places
	seen    [2][numIDs]bool // in any operation
	entries int64
}

// world is an index beside its model.
type world struct {
	setting
	model
	x        *index.Index
	coverage map[places]*index.Coverage // met since the last change
	length   int                        // of all keys, -1 until a store decides
	used     bool                       // something was stored since the last reset
	writers  [numWriters]openWriter
	cursors  [2]index.Cursor // of a lookup and of one in its middle

	resets  int
	stored  int64
	evicted int64
}

type openWriter struct {
	index.Writer
	place, length int
}

// replay runs a history and returns the first difference.
func (s setting) replay(ops []op) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := simd.Force(s.kernel); err != nil {
		return err
	}
	cfg := index.Config{MaxEntries: s.maxEntries, Places: numPlaces, Groups: groups}
	w := &world{setting: s, coverage: map[places]*index.Coverage{}, length: -1}
	if s.given {
		cfg.HashLen, w.length = s.lens[0], 0
	}
	if w.x, err = index.New(cfg); err != nil {
		return err
	}
	if s.bytes {
		index.UseDigests(w.x, false)
	}
	if s.hash != nil {
		index.SetHash(w.x, s.hash)
	}
	for i, o := range ops {
		if err := w.do(o, 0); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	if err := w.audit(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	index.CheckBooks(s.t, w.x)
	return nil
}

// do applies an operation; depth is 1 in the middle of a lookup.
func (w *world) do(o op, depth int) error {
	for _, id := range o.ids {
		w.seen[o.length][id] = true
	}
	var err error
	switch o.kind {
	case opStore:
		err = w.store(o)
	case opEvict:
		err = w.evict(o)
	case opLookup:
		err = w.lookup(o, &w.cursors[depth])
	case opReset:
		w.x.Reset()
		w.reset()
	case opResetPlaces:
		err = w.x.ResetPlaces(o.places())
		w.resetPlaces(o.places())
	}
	clear(w.coverage) // a class may have gone and come again
	if err != nil {
		return err
	}
	return w.checkStats()
}

// reset is what a reset does to the model: nothing if nothing was stored.
func (w *world) reset() {
	if !w.used {
		return
	}
	w.resets++
	w.model.held, w.entries, w.used = [2][numIDs]places{}, 0, false
	if !w.given {
		w.length = -1
	}
}

// resetPlaces is what a reset of places does to the model: an evict of every key.
func (w *world) resetPlaces(lost []int) {
	for length := range w.held {
		for id := range w.held[length] {
			held := &w.held[length][id]
			for _, p := range lost {
				if *held>>p&1 == 0 {
					continue
				}
				if *held &^= 1 << p; *held == 0 {
					w.entries--
					w.evicted++
				}
			}
		}
	}
}

// refuses reports whether the index holds keys of another length.
func (w *world) refuses(o op) bool { return w.length >= 0 && w.length != o.length }

// refused checks that a change of keys of another length changes nothing.
func (w *world) refused(o op, change func(keys []byte, hashLen int) error) error {
	before := w.x.Stats()
	err := w.inChunks(o, func(keys []byte, hashLen int) error {
		if err := change(keys, hashLen); !errors.Is(err, index.ErrOtherHashLen) {
			return fmt.Errorf("keys of another length: %w", err)
		}
		before.Refused++
		return nil
	})
	if after := w.x.Stats(); err == nil && before != after {
		err = fmt.Errorf("%+v before keys of another length, %+v after", before, after)
	}
	return err
}

// checkStats compares the counters.
func (w *world) checkStats() error {
	st := w.x.Stats()
	switch n := w.entries; {
	case st.Entries > n, !w.bounded && st.Entries < n:
		return fmt.Errorf("%d entries, the model has %d", st.Entries, n)
	case w.maxEntries > 0 && st.Entries > w.maxEntries:
		return fmt.Errorf("%d entries, the bound is %d", st.Entries, w.maxEntries)
	case !w.bounded && st.Stored != w.stored:
		return fmt.Errorf("%d counted as stored, the model says %d", st.Stored, w.stored)
	case !w.bounded && st.Evicted != w.evicted:
		return fmt.Errorf("%d counted as evicted, the model says %d", st.Evicted, w.evicted)
	}
	return nil
}

// keys returns the keys of ids.
func (w *world) keys(ids []uint16, length int) (b []byte) {
	for _, id := range ids {
		b = appendKey(b, id, w.lens[length])
	}
	return b
}

// inChunks gives keys to f a few at a time. It overwrites them afterwards: keys are
// only borrowed.
func (w *world) inChunks(o op, f func(keys []byte, hashLen int) error) error {
	n := w.chunk
	if n == 0 {
		n = max(len(o.ids), 1)
	}
	for ids := range slices.Chunk(o.ids, n) {
		keys := w.keys(ids, o.length)
		if err := f(keys, w.lens[o.length]); err != nil {
			return err
		}
		for i := range keys {
			keys[i] = 0xCC
		}
	}
	return nil
}

func (w *world) store(o op) error {
	to := &w.writers[o.writer]
	if w.refuses(o) {
		return w.refused(o, func(keys []byte, hashLen int) error {
			var other index.Writer
			return w.x.Store(&other, []int{o.place}, keys, hashLen)
		})
	}
	before := w.x.Stats().Stored
	fresh := o.fresh || to.place != o.place || to.length != o.length
	if fresh {
		*to = openWriter{place: o.place, length: o.length}
	}
	err := w.inChunks(o, func(keys []byte, hashLen int) error {
		return w.x.Store(&to.Writer, []int{o.place}, keys, hashLen)
	})
	if err != nil {
		return err
	}
	if w.x.Stats().Stored > before { // a writer whose chain was too long stores nothing more
		w.used, w.length = true, o.length
	}
	distinct := map[uint16]bool{}
	var kept []uint16 // what must be there now, in a bounded index too
	for _, id := range o.ids {
		held := &w.held[o.length][id]
		if *held == 0 {
			w.entries++
		}
		if *held>>o.place&1 == 0 {
			w.stored++
		}
		*held |= 1 << o.place
		if distinct[id] = true; w.maxEntries == 0 || int64(len(distinct)) <= w.maxEntries {
			kept = append(kept, id)
		}
	}
	if !fresh || len(kept) < len(o.ids) && len(distinct) < len(o.ids) {
		return nil // room was perhaps taken by the chain's own beginning
	}
	kept = kept[:min(len(kept), to.Stored())] // of a bounded index the rest perhaps found no room
	return w.each(kept, o.length, func(id uint16, held places) error {
		if held>>o.place&1 == 0 {
			return fmt.Errorf("key %d was just stored and is not there", id)
		}
		return nil
	})
}

func (w *world) evict(o op) error {
	if w.refuses(o) {
		return w.refused(o, func(keys []byte, hashLen int) error {
			_, err := w.x.Evict(o.place, keys, hashLen)
			return err
		})
	}
	got := 0
	err := w.inChunks(o, func(keys []byte, hashLen int) error {
		n, err := w.x.Evict(o.place, keys, hashLen)
		got += n
		return err
	})
	if err != nil {
		return err
	}
	want := 0
	for _, id := range o.ids {
		held := &w.held[o.length][id]
		if *held>>o.place&1 == 0 {
			continue
		}
		want++
		if *held &^= 1 << o.place; *held == 0 {
			w.entries--
			w.evicted++
		}
	}
	if got > want || !w.bounded && got < want {
		return fmt.Errorf("%d keys evicted, the model says %d", got, want)
	}
	return nil
}

// audit compares all keys of the history with the model.
func (w *world) audit() error {
	for length := range w.lens {
		var ids []uint16
		for id, seen := range w.seen[length] {
			if seen {
				ids = append(ids, uint16(id))
			}
		}
		if err := w.each(ids, length, func(uint16, places) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// each looks keys up without use and tells f the places of each.
func (w *world) each(ids []uint16, length int, f func(id uint16, held places) error) error {
	c := index.Cursor{Quiet: true}
	w.x.Begin(&c, w.lens[length])
	p := w.newProber(&c, op{ids: ids, length: length, stride: 1})
	p.then = f
	err := p.upTo(len(ids))
	c.Drop()
	return err
}
