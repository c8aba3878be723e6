package index

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/simd"
)

func TestMain(m *testing.M) {
	if err := simd.ForceFromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// onePlace is a pool of one group on one rank.
func onePlace(maxEntries int64) Config {
	return Config{MaxEntries: maxEntries, Places: 1, Groups: [][]int{{0}}}
}

func mustNew(t testing.TB, cfg Config) *Index {
	t.Helper()
	x, err := New(cfg)
	require.NoError(t, err)
	return x
}

// chain returns n hashes of hashLen bytes of a chain that begins with seed.
func chain(seed uint64, n, hashLen int) []byte {
	var b []byte
	var prev [32]byte
	for i := range n {
		prev = sha256.Sum256(binary.BigEndian.AppendUint64(prev[:], seed<<20+uint64(i)))
		b = append(b, append(prev[:], prev[:]...)[:hashLen]...)
	}
	return b
}

// probe runs a whole lookup, in batches of so many keys, and returns the number
// of leading keys that group 0 has, and all presence bits.
func probe(x *Index, keys []byte, hashLen, batch int, stop bool) (leading int, bits []bool) {
	var c Cursor
	var runs [3]Run // few, so that they fill up
	x.Begin(&c, hashLen)
	for len(keys) > 0 {
		piece := keys[:min(len(keys), batch*hashLen)]
		keys = keys[len(piece):]
		for len(piece) > 0 {
			filled, covered, clean := x.Probe(&c, piece, 1, runs[:], stop)
			if !clean {
				clear(bits)
			}
			for _, r := range runs[:filled] {
				for range r.N {
					bits = append(bits, r.Coverage != nil && r.Coverage.Complete&1 == 1)
				}
			}
			piece = piece[covered*hashLen:]
			if stop && !bits[len(bits)-1] {
				piece, keys = nil, nil
			}
		}
	}
	x.End(&c)
	if leading = slices.Index(bits, false); leading < 0 {
		leading = len(bits)
	}
	return leading, bits
}

func store(t testing.TB, x *Index, keys []byte, hashLen int) {
	t.Helper()
	var w Writer
	require.NoError(t, x.Store(&w, 0, keys, hashLen))
}

func TestStoreAndProbe(t *testing.T) {
	for _, hashLen := range []int{1, 4, 8, 16, 20, 31, 32, 33, 64} {
		t.Run(fmt.Sprintf("len=%d", hashLen), func(t *testing.T) {
			x := mustNew(t, onePlace(0))
			n := 10000
			if hashLen == 1 {
				n = 1
			}
			keys := chain(1, n, hashLen)
			store(t, x, keys[:n/2*hashLen], hashLen)
			store(t, x, keys, hashLen) // overlaps what is there
			for _, batch := range []int{1, 7, 2048, n} {
				leading, _ := probe(x, keys, hashLen, batch, true)
				require.Equal(t, n, leading)
			}
			leading, _ := probe(x, chain(2, 100, hashLen)[:hashLen], hashLen, 9, true)
			require.LessOrEqual(t, leading, 1) // one byte may collide, more may not
			if hashLen >= 4 {
				require.Zero(t, leading)
				other := append(slices.Clone(keys[:77*hashLen]), chain(2, 10, hashLen)...)
				leading, bits := probe(x, append(other, keys[:hashLen]...), hashLen, 50, false)
				require.Equal(t, 77, leading)
				require.True(t, bits[len(bits)-1], "a key is found behind absent ones")
				require.False(t, bits[len(bits)-2])
			}
			require.EqualValues(t, n, x.Stats().Entries)
		})
	}
}

func TestHashLengthsAreDifferentKeys(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keys := chain(1, 4, 32)
	store(t, x, keys, 32)
	leading, _ := probe(x, keys, 16, 10, false)
	require.Zero(t, leading)
	store(t, x, keys, 16)
	require.EqualValues(t, 12, x.Stats().Entries)
	leading, _ = probe(x, keys, 16, 10, false)
	require.Equal(t, 8, leading)
	leading, _ = probe(x, keys, 32, 10, false)
	require.Equal(t, 4, leading)
}

func TestStride(t *testing.T) {
	x := mustNew(t, onePlace(0))
	raw := chain(1, 3000, 20)
	var keys []byte
	for i := 2; i < 3000; i += 3 {
		keys = append(keys, raw[i*20:i*20+20]...)
	}
	store(t, x, keys[:900*20], 20)
	var c Cursor
	var runs [64]Run
	x.Begin(&c, 20)
	filled, covered, clean := x.Probe(&c, raw[2*20:], 3, runs[:], true)
	require.True(t, clean)
	require.Equal(t, 901, covered)
	require.Equal(t, 2, filled)
	require.Equal(t, 900, runs[0].N)
	require.Nil(t, runs[1].Coverage)
}

func TestPlaces(t *testing.T) {
	// Two groups on two ranks; place = group*2 + rank.
	x := mustNew(t, Config{Places: 4, Groups: [][]int{{0, 1}, {2, 3}}})
	keys := chain(1, 10, 32)
	at := func() Run {
		var c Cursor
		var runs [4]Run
		x.Begin(&c, 32)
		filled, _, _ := x.Probe(&c, keys, 1, runs[:], false)
		require.Equal(t, 1, filled)
		require.Equal(t, 10, runs[0].N)
		return runs[0]
	}
	put := func(place int) { var w Writer; require.NoError(t, x.Store(&w, place, keys, 32)) }
	require.Nil(t, at().Coverage)
	put(1)
	require.Equal(t, []uint16{1, 0}, at().Coverage.Counts)
	require.Zero(t, at().Coverage.Complete)
	put(0)
	require.EqualValues(t, 0b01, at().Coverage.Complete)
	put(3)
	put(2)
	put(2)
	require.EqualValues(t, 0b11, at().Coverage.Complete)
	for place := range 4 {
		require.True(t, at().Coverage.holds(place))
	}
	require.EqualValues(t, 10, x.Stats().Entries)
	require.EqualValues(t, 40, x.Stats().Stored)

	n, err := x.Evict(1, keys, 32)
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.EqualValues(t, 0b10, at().Coverage.Complete)
	n, err = x.Evict(1, keys, 32)
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = x.Evict(2, keys[4*32:6*32], 32) // one stretch of the log, three runs
	require.NoError(t, err)
	var c Cursor
	var runs [4]Run
	x.Begin(&c, 32)
	filled, covered, _ := x.Probe(&c, keys, 1, runs[:], false)
	require.Equal(t, 10, covered)
	require.Equal(t, 3, filled)
	require.Equal(t, []int{4, 2, 4}, []int{runs[0].N, runs[1].N, runs[2].N})
	require.Same(t, runs[0].Coverage, runs[2].Coverage)
	require.Equal(t, []uint16{1, 1}, runs[1].Coverage.Counts)
	for _, p := range []int{0, 2, 3} {
		_, err = x.Evict(p, keys, 32)
		require.NoError(t, err)
	}
	require.Nil(t, at().Coverage)
	require.Zero(t, x.Stats().Entries)
	require.EqualValues(t, 10, x.Stats().Evicted)
}

func TestBadArguments(t *testing.T) {
	x := mustNew(t, onePlace(0))
	var w Writer
	require.ErrorIs(t, x.Store(&w, 1, chain(1, 1, 32), 32), ErrPlace)
	require.ErrorIs(t, x.Store(&w, -1, chain(1, 1, 32), 32), ErrPlace)
	require.ErrorIs(t, x.Store(&w, 0, chain(1, 1, 32), 0), ErrHashLen)
	require.ErrorIs(t, x.Store(&w, 0, make([]byte, 65), 65), ErrHashLen)
	require.ErrorIs(t, x.Store(&w, 0, make([]byte, 33), 32), ErrCutKey)
	_, err := x.Evict(0, make([]byte, 33), 32)
	require.ErrorIs(t, err, ErrCutKey)
	for _, cfg := range []Config{
		{Places: 0}, {Places: 1, MaxBytes: 100}, {Places: 1, MaxEntries: -1},
		{Places: 1, Groups: [][]int{{1}}}, {Places: 1, Groups: make([][]int, 65)},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig)
	}
}

func TestReset(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keys := chain(1, 5000, 32)
	store(t, x, keys, 32)
	var c Cursor
	var runs [8]Run
	x.Begin(&c, 32)
	_, covered, clean := x.Probe(&c, keys[:3200], 1, runs[:], true)
	require.True(t, clean)
	require.Equal(t, 100, covered)
	x.Reset()
	store(t, x, keys[3200:6400], 32)
	filled, covered, clean := x.Probe(&c, keys[3200:6400], 1, runs[:], true)
	require.False(t, clean, "a reset between two batches must be told")
	require.Equal(t, 1, filled)
	require.Equal(t, 100, covered)
	require.NotNil(t, runs[0].Coverage)
	clean, _ = x.End(&c)
	require.True(t, clean)

	x.Begin(&c, 32)
	x.Reset()
	clean, stable := x.End(&c)
	require.False(t, clean)
	require.False(t, stable)
	st := x.Stats()
	require.Zero(t, st.Entries)
	require.Less(t, st.Bytes, int64(1<<20))
}

func TestWriterContinuesItsChain(t *testing.T) {
	x := mustNew(t, onePlace(100))
	keys := chain(1, 90, 32)
	var w Writer
	for at := 0; at < len(keys); at += 32 { // one key a call, as a slow peer would
		require.NoError(t, x.Store(&w, 0, keys[at:at+32], 32))
	}
	store(t, x, chain(2, 50, 32), 32) // makes 40 of the first make way
	leading, bits := probe(x, keys, 32, 90, false)
	require.Equal(t, 50, leading, "the tail goes first")
	require.NotContains(t, bits[50:], true)
}

func TestChainLongerThanTheIndexKeepsItsBeginning(t *testing.T) {
	x := mustNew(t, onePlace(1000))
	store(t, x, chain(2, 700, 32), 32)
	keys := chain(1, 5000, 32)
	store(t, x, keys, 32)
	leading, _ := probe(x, keys, 32, 512, true)
	require.Equal(t, 1000, leading)
	require.EqualValues(t, 1000, x.Stats().Entries)
}

// model is the index as a list of keys, most recently used first, after the text
// of the package: lookups and stores touch their chain tail first.
type model struct {
	keys []string
	max  int
}

func (m *model) has(k string) bool { return slices.Contains(m.keys, k) }

func (m *model) front(k string) {
	if i := slices.Index(m.keys, k); i >= 0 {
		m.keys = slices.Delete(m.keys, i, i+1)
	}
	m.keys = slices.Insert(m.keys, 0, k)
}

func (m *model) lookup(chain []string) int {
	n := 0
	for n < len(chain) && m.has(chain[n]) {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		m.front(chain[i])
	}
	return n
}

func (m *model) store(chain []string) {
	last := -1 // each key goes right behind the one before it
	for _, k := range chain {
		i := slices.Index(m.keys, k)
		if i >= 0 {
			m.keys = slices.Delete(m.keys, i, i+1)
			if i <= last {
				last--
			}
		} else if len(m.keys) == m.max {
			if last == len(m.keys)-1 {
				return
			}
			m.keys = m.keys[:len(m.keys)-1]
		}
		last++
		m.keys = slices.Insert(m.keys, last, k)
	}
}

func split(b []byte, n int) (s []string) {
	for ; len(b) > 0; b = b[n:] {
		s = append(s, string(b[:n]))
	}
	return s
}

// history runs random operations on an index and on the model.
func history(t *testing.T, seed uint64, x *Index, hashLen int, steps int) {
	rng := rand.New(rand.NewPCG(seed, 2))
	m := &model{max: int(x.maxEntries)}
	chains := make([][]byte, 12)
	for i := range chains {
		chains[i] = chain(uint64(i), 40, hashLen)
		if i > 0 && i%2 == 0 { // forks of the chain before
			cut := rng.IntN(40) * hashLen
			chains[i] = append(slices.Clone(chains[i-1][:cut]), chains[i][cut:]...)
		}
	}
	for step := range steps {
		c := chains[rng.IntN(len(chains))]
		from := rng.IntN(10) / 8 * rng.IntN(20)
		c = c[from*hashLen : (from+1+rng.IntN(40-from))*hashLen]
		switch op := rng.IntN(20); {
		case op < 9:
			leading, _ := probe(x, c, hashLen, 1+rng.IntN(50), true)
			require.Equal(t, m.lookup(split(c, hashLen)), leading, "seed %d step %d", seed, step)
		case op < 18:
			var w Writer
			for rest := c; len(rest) > 0; {
				n := min(len(rest), (1+rng.IntN(30))*hashLen)
				require.NoError(t, x.Store(&w, 0, rest[:n], hashLen))
				rest = rest[n:]
			}
			m.store(split(c, hashLen))
		case op == 18:
			want := 0
			for _, k := range split(c, hashLen) {
				if i := slices.Index(m.keys, k); i >= 0 {
					m.keys = slices.Delete(m.keys, i, i+1)
					want++
				}
			}
			n, err := x.Evict(0, c, hashLen)
			require.NoError(t, err)
			require.Equal(t, want, n, "seed %d step %d", seed, step)
		case rng.IntN(10) == 0:
			x.Reset()
			m.keys = nil
		}
		require.EqualValues(t, len(m.keys), x.Stats().Entries, "seed %d step %d", seed, step)
		if step%50 == 0 {
			checkLists(t, x)
		}
		_, bits := probeSilent(x, c, hashLen)
		for i, k := range split(c, hashLen) {
			require.Equal(t, m.has(k), bits[i], "seed %d step %d key %d", seed, step, i)
		}
	}
}

// probeSilent looks without touching.
func probeSilent(x *Index, keys []byte, hashLen int) (int, []bool) {
	var c Cursor
	runs := make([]Run, len(keys))
	var bits []bool
	x.Begin(&c, hashLen)
	filled, _, _ := x.Probe(&c, keys, 1, runs, false)
	for _, r := range runs[:filled] {
		for range r.N {
			bits = append(bits, r.Coverage != nil)
		}
	}
	c.Drop()
	return 0, bits
}

// checkLists walks the recency list and the free lists.
func checkLists(t testing.TB, x *Index) {
	t.Helper()
	n, before := int64(0), noSlot
	for s := x.newest; s != noSlot; n++ {
		seg, i := x.at(s)
		require.NotEqual(t, noClass, seg.class[i], "a free slot is in the recency list")
		require.Equal(t, before, seg.newer[i])
		require.Equal(t, s, x.find(x.tag(seg.key(i)), seg.key(i)), "an entry is not in the table")
		require.LessOrEqual(t, n, x.entries)
		before, s = s, seg.older[i]
	}
	require.Equal(t, before, x.oldest)
	require.Equal(t, x.entries, n)
	free := int64(0)
	for _, s := range x.free {
		for ; s != noSlot; free++ {
			seg, i := x.at(s)
			require.Equal(t, noClass, seg.class[i])
			s = seg.newer[i]
		}
	}
	require.Equal(t, x.slots, x.entries+free)
}

// TestTouchesOfEvicted applies touches of entries that are gone by then, as when
// a store evicts between a lookup and the next change.
func TestTouchesOfEvicted(t *testing.T) {
	for name, gone := range map[string][2]slot{"head": {0, 3}, "middle": {4, 6}, "tail": {7, 10}, "all": {0, 10}, "one": {5, 6}} {
		x := mustNew(t, onePlace(0))
		keys := chain(1, 10, 32)
		store(t, x, keys, 32)
		store(t, x, chain(2, 10, 32), 32)
		probe(x, keys, 32, 10, true)
		for s := gone[0]; s < gone[1]; s++ {
			x.remove(s)
		}
		x.applyTouches()
		checkLists(t, x)
		if gone[0] > 0 {
			require.EqualValues(t, 0, x.newest, name)
		}
	}
}

func TestHistories(t *testing.T) {
	for seed := range uint64(60) {
		hashLen := []int{4, 8, 20, 32, 64}[seed%5]
		x := mustNew(t, onePlace([]int64{1, 7, 30, 100, 400}[seed/5%5]))
		history(t, seed, x, hashLen, 300)
	}
}

// TestBadHashes repeats the histories under hashes that do not spread.
func TestBadHashes(t *testing.T) {
	for name, hash := range map[string]func(maphash.Seed, []byte) uint64{
		"zero":     func(maphash.Seed, []byte) uint64 { return 0 },
		"ones":     func(maphash.Seed, []byte) uint64 { return ^uint64(0) },
		"two bits": func(_ maphash.Seed, b []byte) uint64 { return uint64(b[0]&3) << 62 },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				x := mustNew(t, onePlace(100))
				x.hash = hash
				history(t, seed, x, 16, 200)
			}
			x := mustNew(t, onePlace(0))
			x.hash = hash
			keys := chain(1, 3000, 32)
			store(t, x, keys, 32)
			leading, _ := probe(x, keys, 32, 100, true)
			require.Equal(t, 3000, leading)
			require.LessOrEqual(t, len(x.table.directory), 4096, "the directory must not explode")
		})
	}
}

func FuzzHistory(f *testing.F) {
	f.Add(uint64(1), byte(32), uint16(50))
	f.Add(uint64(2), byte(1), uint16(3))
	f.Fuzz(func(t *testing.T, seed uint64, hashLen byte, max uint16) {
		if hashLen < 4 || hashLen > 64 || max == 0 {
			return
		}
		history(t, seed, mustNew(t, onePlace(int64(max%500)+1)), int(hashLen), 60)
	})
}

func TestByteBound(t *testing.T) {
	const bound = 16 << 20
	x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
	for i := range uint64(400) {
		store(t, x, chain(i, 1000, 32), 32)
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	full := x.Stats().Entries
	require.Greater(t, full, int64(bound/80), "too little of the memory is used")
	last := chain(399, 1000, 32)
	leading, _ := probe(x, last, 32, 2000, true)
	require.Equal(t, 1000, leading)

	// Keys of another length take the memory over.
	for i := range uint64(400) {
		store(t, x, chain(i, 1000, 16), 16)
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	leading, _ = probe(x, chain(399, 1000, 16), 16, 2000, true)
	require.Equal(t, 1000, leading)
	leading, _ = probe(x, last, 32, 2000, true)
	require.Zero(t, leading)
	for i := range uint64(400) { // and back
		store(t, x, chain(i, 1000, 32), 32)
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	leading, _ = probe(x, last, 32, 2000, true)
	require.Equal(t, 1000, leading)
}

// TestByteBoundOfSmallKeys is where the table weighs most.
func TestByteBoundOfSmallKeys(t *testing.T) {
	for _, bound := range []int64{MinMaxBytes, 5 << 20, 7 << 20, 9 << 20} {
		x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
		for i := range uint64(600) {
			store(t, x, chain(i, 1000, 8), 8)
			require.LessOrEqual(t, x.Stats().Bytes, bound)
		}
	}
}

// TestBytesAreTrue holds what the index says of its memory against the runtime.
func TestBytesAreTrue(t *testing.T) {
	var before, after runtime.MemStats
	keys := chain(1, 400000, 32)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := mustNew(t, onePlace(0))
	store(t, x, keys, 32)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	real := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	require.InEpsilon(t, real, x.Stats().Bytes, 0.05)
	t.Logf("%.1f bytes an entry", real/400000)
	runtime.KeepAlive(keys)
}

func TestClassesRunOut(t *testing.T) {
	x := mustNew(t, Config{Places: 20, Groups: [][]int{{0}}})
	keys := chain(1, 1<<17, 8)
	var err error
	for p := range 20 {
		for i := 0; i < 1<<17 && err == nil; i++ {
			if i>>p&1 == 1 {
				var w Writer
				err = x.Store(&w, p, keys[i*8:i*8+8], 8)
			}
		}
	}
	require.ErrorIs(t, err, ErrClasses)
	require.EqualValues(t, 1, x.Stats().Refused)
	var w Writer
	require.NoError(t, x.Store(&w, 0, chain(2, 10, 8), 8), "what needs no new class still works")
}

// TestConcurrent lets lookups, stores, evictions and resets meet. Chain 0 is
// never evicted on request and the index is large enough for all, so without
// resets it must always be found whole.
func TestConcurrent(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keep := chain(0, 3000, 32)
	store(t, x, keep, 32)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			c := chain(g+1, 2000, 32)
			for range 30 {
				if leading, _ := probe(x, keep, 32, 700, true); leading != 3000 {
					t.Errorf("found %d of 3000", leading)
					return
				}
				store(t, x, c, 32)
				if leading, _ := probe(x, c, 32, 700, true); leading != 2000 {
					t.Errorf("found %d of 2000 just stored", leading)
					return
				}
				_, _ = x.Evict(0, c[32*100:], 32)
				_ = x.Stats()
			}
		})
	}
	wg.Wait()
	for range 3 { // resets, for the race detector
		wg.Go(func() { probe(x, keep, 32, 100, false) })
		wg.Go(x.Reset)
		wg.Go(func() { store(t, x, keep, 32) })
	}
	wg.Wait()
}

func TestProbeDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	x := mustNew(t, onePlace(0))
	keys := chain(1, 5000, 32)
	store(t, x, keys, 32)
	var c Cursor
	var runs [64]Run
	require.Zero(t, testing.AllocsPerRun(200, func() {
		x.Begin(&c, 32)
		_, _, _ = x.Probe(&c, keys, 1, runs[:], true)
		x.End(&c)
		x.applyTouches()
	}))
}

// BenchmarkProbe looks up 8,192 keys an operation among a million, beside a Go
// map of the same keys.
func BenchmarkProbe(b *testing.B) {
	const entries, batch = 1 << 20, 8192
	stored := make([]byte, entries*32)
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(stored)
	x := mustNew(b, onePlace(0))
	store(b, x, stored, 32)
	rival := make(map[[32]byte]uint32, entries)
	for i := range entries {
		rival[[32]byte(stored[i*32:])] = uint32(i)
	}
	for _, order := range []string{"chain", "random", "miss"} {
		keys := slices.Clone(stored)
		switch order {
		case "random":
			rand.New(rng).Shuffle(entries, func(i, j int) {
				t := [32]byte(keys[i*32:])
				copy(keys[i*32:i*32+32], keys[j*32:])
				copy(keys[j*32:], t[:])
			})
		case "miss":
			_, _ = rng.Read(keys)
		}
		for name, look := range map[string]func(keys []byte){
			"hitline": func(piece []byte) {
				var c Cursor
				var runs [64]Run
				x.Begin(&c, 32)
				for len(piece) > 0 {
					_, covered, _ := x.Probe(&c, piece, 1, runs[:], false)
					piece = piece[covered*32:]
				}
			},
			"gomap": func(piece []byte) {
				found := uint32(0)
				for ; len(piece) > 0; piece = piece[32:] {
					found += rival[[32]byte(piece)]
				}
				sink = found
			},
		} {
			b.Run(fmt.Sprintf("order=%s/index=%s", order, name), func(b *testing.B) {
				n := 0
				for b.Loop() {
					at := n % (entries / batch) * batch * 32
					look(keys[at : at+batch*32])
					n++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/batch, "ns/hash")
			})
		}
	}
}

var sink uint32 // keeps the rival's loop from being removed
