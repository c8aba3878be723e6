package index_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/index"
)

// The benchmarks of this package that depend on the number of entries have several: one in the
// second-level cache and one beyond it, or those of HITLINE_BENCH_ENTRIES, such as 16384,10000000.
// An index of one place, index=hitline, stands beside a Go map, presized, of the same hashes in the
// same order: index=gomap. Every answer is checked.

const (
	hashLen  = workload.HashLen
	chainLen = 8192 // hashes of a chain or request
	// missLen is how many hashes a request has whose first one is absent.
	missLen = 131072
)

// benchmarkEntries returns the numbers of entries, each a multiple of chainLen.
func benchmarkEntries(b *testing.B) []int {
	given := os.Getenv("HITLINE_BENCH_ENTRIES")
	if given == "" {
		return []int{1 << 14, 1 << 18}
	}
	var sizes []int
	for number := range strings.SplitSeq(given, ",") {
		n, err := strconv.Atoi(number)
		require.NoError(b, err, "HITLINE_BENCH_ENTRIES")
		sizes = append(sizes, max((n+chainLen-1)/chainLen, 1)*chainLen)
	}
	return sizes
}

// forEntries runs f for each number of entries.
func forEntries(b *testing.B, f func(b *testing.B, chains *workload.Chains)) {
	for _, n := range benchmarkEntries(b) {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			f(b, workload.NewChains(workload.ChainOptions{Chains: n / chainLen, Hashes: chainLen, BlockSize: 1, Seed: 1}))
		})
	}
}

// subject is what is measured. For one goroutine.
type subject interface {
	store(hashes []byte) error
	// leading looks hashes up until one is absent, and returns how many are not.
	leading(hashes []byte) int
	// stated returns how many bytes it says it has; 0 if it does not say.
	stated() int64
}

// subjects make what is measured, with room for the given entries.
var subjects = []struct {
	name string
	make func(b *testing.B, entries int) subject
}{
	{"hitline", func(b *testing.B, entries int) subject { return newPool(b, entries, 0) }},
	{"gomap", func(_ *testing.B, entries int) subject { return make(hashMap, entries) }},
}

// forSubjects runs f for the index and for the map.
func forSubjects(b *testing.B, f func(b *testing.B, newSubject func(b *testing.B, entries int) subject)) {
	for _, subject := range subjects {
		b.Run("index="+subject.name, func(b *testing.B) { f(b, subject.make) })
	}
}

func storeChains(tb testing.TB, s subject, chains *workload.Chains) {
	for i := range chains.Len() {
		require.NoError(tb, s.store(chains.Chain(i)))
	}
}

// pool is an index of one place, with what a connection of a server keeps between lookups.
type pool struct {
	*index.Index
	cursor index.Cursor
	runs   [64]index.Run
}

// newPool returns an index with room for the given entries, bounded to maxEntries unless that is 0.
func newPool(tb testing.TB, entries, maxEntries int) *pool {
	x, err := index.New(index.Config{
		MaxBytes: max(index.DefaultMaxBytes, int64(entries)*(hashLen+128)), MaxEntries: int64(maxEntries), Places: 1, Groups: [][]int{{0}},
	})
	require.NoError(tb, err)
	return &pool{Index: x}
}

func (p *pool) store(hashes []byte) error {
	return p.Store(new(index.Writer), []int{0}, hashes, hashLen)
}

func (p *pool) leading(hashes []byte) int {
	p.Begin(&p.cursor, hashLen)
	defer p.End(&p.cursor)
	n := 0
	for len(hashes) > 0 {
		filled, covered, _ := p.Probe(&p.cursor, hashes, 1, p.runs[:], true)
		for _, run := range p.runs[:filled] {
			if run.Coverage == nil || run.Coverage.Complete&1 == 0 {
				return n
			}
			n += run.N
		}
		hashes = hashes[covered*hashLen:]
	}
	return n
}

func (p *pool) stated() int64 { return p.Stats().Bytes }

// hashMap is a Go map of hashes to numbers. Its loops convert and allocate nothing.
type hashMap map[[hashLen]byte]uint32

// arrays returns the same bytes as keys of the map; they may lie at any address.
func arrays(hashes []byte) [][hashLen]byte {
	return unsafe.Slice((*[hashLen]byte)(unsafe.Pointer(unsafe.SliceData(hashes))), len(hashes)/hashLen)
}

func (m hashMap) store(hashes []byte) error {
	for _, h := range arrays(hashes) {
		if _, ok := m[h]; !ok {
			m[h] = uint32(len(m))
		}
	}
	return nil
}

func (m hashMap) leading(hashes []byte) int {
	all := arrays(hashes)
	for i := range all {
		if _, ok := m[all[i]]; !ok {
			return i
		}
	}
	return len(all)
}

func (m hashMap) stated() int64 { return 0 }

// BenchmarkFill stores chains of 8,192 hashes into an empty index.
func BenchmarkFill(b *testing.B) {
	forEntries(b, func(b *testing.B, chains *workload.Chains) {
		for b.Loop() {
			storeChains(b, newPool(b, chains.Entries(), 0), chains)
		}
		perHash(b, b.N*chains.Entries())
	})
}

// orders make the requests of BenchmarkProbe from the stored chains, each of chainLen hashes. Every hash
// comes once before any comes again.
var orders = []struct {
	name     string
	requests func(chains *workload.Chains) [][]byte
}{
	// Chains as they were stored, in random order.
	{"chain", func(chains *workload.Chains) [][]byte {
		requests := make([][]byte, chains.Len())
		for i := range requests {
			requests[i] = chains.Chain(chains.Lookup(i).Chain)
		}
		return requests
	}},
	// All hashes in one random order.
	{"random", func(chains *workload.Chains) [][]byte {
		mixed := make([]byte, 0, chains.Entries()*hashLen)
		for _, i := range chains.Rand(workload.ForOthers).Perm(chains.Entries()) {
			mixed = append(mixed, chains.Hash(i/chainLen, i%chainLen)...)
		}
		return slices.Collect(slices.Chunk(mixed, chainLen*hashLen))
	}},
}

// BenchmarkProbe looks up 8,192 stored hashes an operation, as full-attention lookups do.
func BenchmarkProbe(b *testing.B) {
	for _, order := range orders {
		b.Run("order="+order.name, func(b *testing.B) {
			forSubjects(b, func(b *testing.B, newSubject func(*testing.B, int) subject) {
				forEntries(b, func(b *testing.B, chains *workload.Chains) {
					s := newSubject(b, chains.Entries())
					storeChains(b, s, chains)
					requests := order.requests(chains)
					runtime.GC() // not while something is measured
					n := 0
					for ; b.Loop(); n++ {
						if got := s.leading(requests[n%len(requests)]); got != chainLen {
							b.Fatalf("%d of %d stored hashes were found", got, chainLen)
						}
					}
					perHash(b, b.N*chainLen)
				})
			})
		})
	}
}

// BenchmarkFirstMiss looks up 131,072 hashes of which the first is absent, another one each time,
// so that what the table holds of it is cold. A request begins one hash behind the one before, so that
// a few MiB hold many, and where depends on the answer, so that no two overlap in time.
func BenchmarkFirstMiss(b *testing.B) {
	const requests = 1 << 16 // before the hashes are drawn anew
	forSubjects(b, func(b *testing.B, newSubject func(*testing.B, int) subject) {
		forEntries(b, func(b *testing.B, chains *workload.Chains) {
			s := newSubject(b, chains.Entries())
			storeChains(b, s, chains)
			absent, fresh := make([]byte, (requests+missLen)*hashLen), rand.NewChaCha8([32]byte{1})
			_, _ = fresh.Read(absent) // never fails
			runtime.GC()
			at := 0
			for b.Loop() {
				if at == requests {
					b.StopTimer()
					_, _ = fresh.Read(absent)
					at = 0
					b.StartTimer()
				}
				got := s.leading(absent[at*hashLen:][:missLen*hashLen])
				if at += 1 + got; got != 0 {
					b.Fatalf("%d hashes were found that had never been stored", got)
				}
			}
		})
	})
}

// BenchmarkMemory stores chains, and reports the bytes of an entry: what is in use afterwards, heap and
// mapped memory; the most meanwhile, with garbage; and how many the index says it has.
func BenchmarkMemory(b *testing.B) {
	forSubjects(b, func(b *testing.B, newSubject func(*testing.B, int) subject) {
		forEntries(b, func(b *testing.B, chains *workload.Chains) {
			each := func(bytes int64) float64 { return float64(bytes) / float64(chains.Entries()) }
			for b.Loop() {
				before := measure.SettledMemory()
				peak := watchMemory(before)
				s := newSubject(b, chains.Entries())
				storeChains(b, s, chains)
				most, settled := peak(), measure.SettledMemory().Since(before)
				b.ReportMetric(each(settled), "B/entry")
				b.ReportMetric(each(max(most, settled)), "peak-B/entry")
				if stated := s.stated(); stated > 0 {
					b.ReportMetric(each(stated), "stated-B/entry")
				}
				runtime.KeepAlive(s)
			}
		})
	})
}

// watchMemory looks at memory all the time until the peak is asked for: the largest growth.
func watchMemory(before measure.Memory) (peak func() int64) {
	stop := make(chan struct{})
	var most int64
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, measure.MemoryNow().Since(before))
			select {
			case <-tick.C:
			case <-stop:
				most = max(most, measure.MemoryNow().Since(before))
				return
			}
		}
	})
	return func() int64 {
		close(stop)
		watching.Wait()
		return most
	}
}

// perHash reports the time of an operation on n keys.
func perHash(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/hash")
}
