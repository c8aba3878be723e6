package index_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// What Stats says of the memory is held against the runtime and the kernel.

// usage is the memory in use: live objects on the heap and what is mapped beside it.
type usage struct{ heap, mapped int64 }

func used() usage {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return usage{int64(m.HeapAlloc), mappedBytes()}
}

// since returns by how many bytes the use has grown. Less than a MiB beside the heap
// is the runtime's own.
func (before usage) since() int64 {
	now := used()
	grown := now.heap - before.heap
	if mapped := now.mapped - before.mapped; mapped >= 1<<20 {
		grown += mapped
	}
	return grown
}

// mappedBytes is the anonymous memory outside the heap, its executable and its
// stacks, as far as the kernel tells: memory that was mapped by hand, and some of
// the runtime's own. The heap lies in one stretch of the address space.
func mappedBytes() (n int64) {
	const sameHeap = 1 << 40
	onHeap := new([1 << 16]byte)
	var heap uint64
	_, _ = fmt.Sscanf(fmt.Sprintf("%p", onHeap), "0x%x", &heap)
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0
	}
	defer f.Close()
	counts := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uint64
		var kib int64
		line := lines.Text()
		if k, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); k == 2 {
			counts = len(strings.Fields(line)) == 5 && from > 1<<32 && from/sameHeap != heap/sameHeap
		} else if k, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kib); k == 1 && counts {
			n += kib << 10
		}
	}
	return n
}

// filler stores chains of random keys and keeps the last one.
type filler struct {
	*rand.ChaCha8
	keys    []byte
	hashLen int
}

func newFiller(hashLen, longest int) *filler {
	return &filler{ChaCha8: rand.NewChaCha8([32]byte{byte(hashLen)}), keys: make([]byte, longest*hashLen), hashLen: hashLen}
}

func (f *filler) store(t *testing.T, x *index.Index, n int) {
	_, _ = f.Read(f.keys[:n*f.hashLen])
	storeKeys(t, x, f.keys[:n*f.hashLen], f.hashLen)
}

func skipUnlessMeasurable(t *testing.T) {
	if index.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
}

// requireTrueBytes compares an index with what has been in use since before it.
func requireTrueBytes(t *testing.T, x *index.Index, before usage) {
	t.Helper()
	grown, st := before.since(), x.Stats()
	t.Logf("%d entries: %.1f bytes each in use, %.1f told", st.Entries,
		float64(grown)/float64(st.Entries), float64(st.Bytes)/float64(st.Entries))
	require.InEpsilon(t, grown, st.Bytes, 0.05)
}

func TestBytesOfChains(t *testing.T) {
	skipUnlessMeasurable(t)
	const entries = 400_000
	for _, hashLen := range []int{8, 32, 64} {
		for _, chain := range []int{8192, 16, 1} {
			t.Run(fmt.Sprintf("len=%d/chain=%d", hashLen, chain), func(t *testing.T) {
				f := newFiller(hashLen, chain)
				before := used()
				x := newIndex(t, 0, 0)
				for n := 0; n < entries; n += chain {
					f.store(t, x, chain)
				}
				requireTrueBytes(t, x, before)
				runtime.KeepAlive(f)
			})
		}
	}
}

// TestBytesAtTheBound stores three times what fits, in chains of all sizes, looks
// some of it up and evicts some on request.
func TestBytesAtTheBound(t *testing.T) {
	index.SkipSlow(t)
	skipUnlessMeasurable(t)
	const bound = 8 << 20
	sizes := []int{1, 8192, 1, 16, 1, 300, 16, 16}
	for _, hashLen := range []int{8, 32, 64} {
		t.Run(fmt.Sprintf("len=%d", hashLen), func(t *testing.T) {
			f := newFiller(hashLen, 8192)
			before := used()
			x := newIndex(t, bound, 0)
			for stored, i := 0, 0; stored < 3*bound/(hashLen+14); i++ {
				n := sizes[i%len(sizes)]
				f.store(t, x, n)
				stored += n
				require.Equal(t, n, lookUp(x, f.keys[:n*hashLen], hashLen))
				if n == 16 {
					_, err := x.Evict(0, f.keys[5*hashLen:9*hashLen], hashLen)
					require.NoError(t, err)
				}
				require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
				if i%50 == 0 {
					require.LessOrEqual(t, before.since(), int64(bound))
				}
			}
			requireTrueBytes(t, x, before)
			runtime.KeepAlive(f)
		})
	}
}

// TestBytesAtTheBoundOfEntries is the same for a bound on the number.
func TestBytesAtTheBoundOfEntries(t *testing.T) {
	index.SkipSlow(t)
	skipUnlessMeasurable(t)
	const bound = 100_000
	for _, chain := range []int{8192, 16, 1} {
		t.Run(fmt.Sprintf("chain=%d", chain), func(t *testing.T) {
			f := newFiller(32, chain)
			before := used()
			x := newIndex(t, 0, bound)
			for n := 0; n < 4*bound; n += chain {
				f.store(t, x, chain)
			}
			require.EqualValues(t, bound, x.Stats().Entries)
			requireTrueBytes(t, x, before)
			runtime.KeepAlive(f)
		})
	}
}
