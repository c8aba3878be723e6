package indexbench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/index"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const excerpt = "../testdata/conversation_excerpt.jsonl"

// liar is an index whose answers pass through lie.
type liar struct {
	subject
	lie  func(keys []byte, n int) int
	lose func(keys []byte) bool // stores to drop, if set
}

func (l liar) reader(hashLen int) reader { return lyingReader{l.subject.reader(hashLen), l.lie} }

func (l liar) store(w *index.Writer, keys []byte, hashLen int) error {
	if l.lose != nil && l.lose(keys) {
		return nil
	}
	return l.subject.store(w, keys, hashLen)
}

type lyingReader struct {
	reader
	lie func(keys []byte, n int) int
}

func (r lyingReader) leading(keys []byte) int { return r.lie(keys, r.reader.leading(keys)) }

func honest(_ []byte, n int) int { return n }

// lying returns an opener of indexes that lie.
func lying(lie func(keys []byte, n int) int, lose func([]byte) bool) opener {
	return func(maxEntries, want int64, hashLen int) (subject, error) {
		x, err := newPool(maxEntries, want, hashLen)
		return liar{x, lie, lose}, err
	}
}

// unbounded opens indexes that do not keep to their bound.
func unbounded(_, want int64, hashLen int) (subject, error) { return newPool(0, want, hashLen) }

// fields returns the names and values of a report that is one line of JSON.
func fields(t *testing.T, write func(io.Writer) error) map[string]any {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, write(&out))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	got := map[string]any{}
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	return got
}

func positive(t *testing.T, got map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		v, ok := got[name].(float64)
		require.True(t, ok, "%s is %v", name, got[name])
		assert.Positive(t, v, name)
	}
}

// wantSetup wants a report that says what it was made with.
func wantSetup(t *testing.T, got map[string]any, seed int) {
	t.Helper()
	setup, ok := got["setup"].(map[string]any)
	require.True(t, ok)
	assert.EqualValues(t, seed, setup["seed"])
	assert.NotEmpty(t, setup["command"])
	assert.NotEmpty(t, setup["machine"].(map[string]any)["kernel"])
}

func TestSpeed(t *testing.T) {
	for _, hashLen := range []int{8, 16, 20, 24, 32} {
		var phases []string
		r, err := Speed(t.Context(), SpeedOptions{Seed: 1, Entries: 20_000, HashLen: hashLen, Passes: 2, misses: 300,
			Progress: func(phase string, done, total int) {
				phases = append(phases, phase)
				assert.LessOrEqual(t, done, total)
			}})
		require.NoError(t, err)
		got := fields(t, r.WriteJSON)
		positive(t, got, "chain_ns", "random_ns", "miss_ns", "bytes_per_entry", "peak_bytes_per_entry", "stats_bytes_per_entry",
			"single_stores_per_s", "single_stats_bytes_per_entry")
		assert.Greater(t, r.BytesPerEntry, float64(hashLen), "every hash is kept somewhere")
		assert.Contains(t, got, "mapped_bytes_per_entry")
		wantSetup(t, got, 1)
		assert.LessOrEqual(t, r.ChainSpread[0], r.ChainNs)
		assert.LessOrEqual(t, r.ChainNs, r.ChainSpread[1])
		rivals := []string{"gomap_chain_ns", "gomap_random_ns", "chain_ratio", "random_ratio", "miss_in_map_accesses", "gomap_bytes_per_entry"}
		if hashLen == 24 {
			for _, name := range rivals {
				assert.Contains(t, got, name)
				assert.Nil(t, got[name])
			}
		} else {
			positive(t, got, "gomap_chain_ns", "gomap_random_ns", "gomap_bytes_per_entry")
			assert.InDelta(t, *r.GomapChainNs/r.ChainNs, *r.ChainRatio, 0.01)
			assert.InDelta(t, *r.GomapRandomNs/r.RandomNs, *r.RandomRatio, 0.01)
			assert.InDelta(t, r.MissNs / *r.GomapRandomNs, *r.MissInMapAccesses, 0.01)
		}
		assert.Equal(t, "fill", phases[0])
		assert.Equal(t, "single stores", phases[len(phases)-1])
		var table bytes.Buffer
		require.NoError(t, r.WriteTable(&table))
		assert.Contains(t, table.String(), "random, ns a hash")
		assert.NotContains(t, table.String(), " \n")
	}
}

func TestSpeedFindsWrongAnswers(t *testing.T) {
	first := seed(1).allKeys(ChainLen, 32)
	last := seed(1).shuffled(seed(1).allKeys(20_000, 32), 32)[2*ChainLen*32:]
	for name, open := range map[string]opener{
		"one too few in a chain": lying(func(keys []byte, n int) int {
			if bytes.Equal(keys, first) {
				return n - 1
			}
			return n
		}, nil),
		"one too few in random order": lying(func(keys []byte, n int) int {
			if bytes.Equal(keys, last) {
				return n - 1
			}
			return n
		}, nil),
		"present without being stored": lying(func(keys []byte, n int) int { return max(n, len(keys)/32-ChainLen) }, nil),
		"a store is lost":              lying(honest, func(keys []byte) bool { return bytes.Equal(keys, first) }),
	} {
		_, err := Speed(t.Context(), SpeedOptions{Seed: 1, Entries: 20_000, HashLen: 32, Passes: 1, misses: 300, open: open})
		require.ErrorIs(t, err, ErrWrong, name)
		if name == "a store is lost" {
			require.ErrorContains(t, err, "entries after 20000 different hashes", "before anything is timed")
		}
	}
}

func TestShuffledHoldsTheSameKeys(t *testing.T) {
	keys := seed(1).allKeys(20_000, 20)
	mixed := seed(1).shuffled(keys, 20)
	assert.NotEqual(t, keys, mixed)
	sorted := func(b []byte) [][20]byte {
		s := slices.Clone(view[[20]byte](b))
		slices.SortFunc(s, func(a, b [20]byte) int { return bytes.Compare(a[:], b[:]) })
		return s
	}
	assert.Equal(t, sorted(keys), sorted(mixed))
	assert.Len(t, slices.Compact(sorted(keys)), 20_000)
}

// evictions counts what a feed evicts by its keys.
type evictions struct {
	subject
	asked, held int
}

func (e *evictions) evict(keys []byte, hashLen int) (int, error) {
	n, err := e.subject.evict(keys, hashLen)
	e.asked += len(keys) / hashLen
	e.held += n
	return n, err
}

func TestFeedEvictsEveryOtherChain(t *testing.T) {
	x, err := newPool(10*ChainLen, 10*ChainLen, 16)
	require.NoError(t, err)
	e := &evictions{subject: x}
	f := newFeed(e, 1, 16, 3, 10)
	for range 20 {
		require.NoError(t, f.chain())
	}
	assert.Zero(t, e.asked)
	evicted := x.stats().Evicted
	assert.EqualValues(t, 10*ChainLen, evicted)
	f.evicts = true
	for range 20 {
		require.NoError(t, f.chain())
	}
	assert.Equal(t, 10*ChainLen, e.asked)
	assert.Equal(t, e.asked, e.held, "what is evicted was there")
	assert.InDelta(t, 20*ChainLen, x.stats().Evicted-evicted, feedBatch)
}

func TestReplay(t *testing.T) {
	r, err := Replay(t.Context(), ReplayOptions{Trace: workload.FileTrace(excerpt), Passes: 1, Capacities: []int64{50_000, 100}})
	require.NoError(t, err)
	got := fields(t, r.WriteJSON)
	positive(t, got, "trace_ns_per_hit_hash", "gomap_trace_ns_per_hit_hash")
	wantSetup(t, got, 0)
	assert.InDelta(t, r.GomapNsPerHit/r.NsPerHit, r.Ratio, 0.01)
	assert.Equal(t, 799, r.Requests)
	assert.EqualValues(t, 21951*32, r.Hashes)
	assert.EqualValues(t, 4144*32, r.HitHashes)
	require.Len(t, r.Capacities, 2)
	assert.Equal(t, CapacityRow{50_000, 4144, 4144, 4144, 4144}, r.Capacities[0])
	c := r.Capacities[1]
	assert.Less(t, c.Belady, int64(4144))
	assert.GreaterOrEqual(t, c.Belady, c.TailLRU)
	assert.GreaterOrEqual(t, c.TailLRU, c.LRU)
	assert.Positive(t, c.Hitline)
	row := got["capacities"].([]any)[1].(map[string]any)
	for _, name := range []string{"capacity", "hitline", "lru", "tail_lru", "belady"} {
		assert.Contains(t, row, name)
	}
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	assert.Contains(t, table.String(), "belady")
}

func TestReplayFindsWrongAnswers(t *testing.T) {
	o := ReplayOptions{Trace: workload.FileTrace(excerpt), Passes: 1}
	calls := 0
	o.open = lying(func(_ []byte, n int) int {
		if calls++; calls == 700 {
			return n + 1
		}
		return n
	}, nil)
	_, err := Replay(t.Context(), o)
	require.ErrorIs(t, err, ErrWrong)
	require.ErrorContains(t, err, "request 700:")

	o.Capacities = []int64{100}
	for name, open := range map[string]opener{
		"too many hits": lying(func(keys []byte, _ int) int { return len(keys) / 32 }, nil),
		"no bound, and no hits to show it": func(_, want int64, hashLen int) (subject, error) {
			x, err := newPool(0, want, hashLen)
			return liar{x, func([]byte, int) int { return 0 }, nil}, err
		},
	} {
		o.open = open
		_, err = o.withDefaults().capacities(t.Context())
		require.ErrorIs(t, err, ErrWrong, name)
	}
}

func (o ReplayOptions) withDefaults() ReplayOptions {
	setDefaults(&o.Progress, &o.open)
	return o
}

func TestWrongOptions(t *testing.T) {
	trace := workload.FileTrace(excerpt)
	speed := func(change func(*SpeedOptions)) SpeedOptions {
		o := SpeedOptions{Entries: 1, HashLen: 32, Passes: 1, Seed: 1}
		change(&o)
		return o
	}
	churn := func(change func(*ChurnOptions)) ChurnOptions {
		o := churnOptions()
		change(&o)
		return o
	}
	for name, o := range map[string]interface{ Validate() error }{
		"no entries":        speed(func(o *SpeedOptions) { o.Entries = 0 }),
		"too many entries":  speed(func(o *SpeedOptions) { o.Entries = maxEntries + 1 }),
		"short hashes":      speed(func(o *SpeedOptions) { o.HashLen = 7 }),
		"long hashes":       speed(func(o *SpeedOptions) { o.HashLen = 65 }),
		"no passes":         speed(func(o *SpeedOptions) { o.Passes = 0 }),
		"no seed":           speed(func(o *SpeedOptions) { o.Seed = 0 }),
		"few for churn":     churn(func(o *ChurnOptions) { o.Entries = MinChurnEntries - 1 }),
		"no rate":           churn(func(o *ChurnOptions) { o.Rate = 0 }),
		"no lookups":        churn(func(o *ChurnOptions) { o.LookupRate = 0 }),
		"too many lookups":  churn(func(o *ChurnOptions) { o.LookupRate, o.Phase = 1e6, time.Minute }),
		"short phase":       churn(func(o *ChurnOptions) { o.Phase = 0 }),
		"no rounds":         churn(func(o *ChurnOptions) { o.Rounds = 0 }),
		"no seed, churn":    churn(func(o *ChurnOptions) { o.Seed = 0 }),
		"no capacity":       ReplayOptions{Trace: trace, Passes: 1, Capacities: []int64{0}},
		"no trace":          ReplayOptions{Passes: 1},
		"no passes, traces": ReplayOptions{Trace: trace},
	} {
		require.ErrorIs(t, o.Validate(), measure.ErrOptions, name)
	}
	require.NoError(t, speed(func(*SpeedOptions) {}).Validate())
	require.NoError(t, churn(func(*ChurnOptions) {}).Validate())
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Speed(ctx, SpeedOptions{Seed: 1, Entries: 20_000, HashLen: 32, Passes: 1})
	require.ErrorIs(t, err, context.Canceled)
	_, err = Churn(ctx, churnOptions())
	require.ErrorIs(t, err, context.Canceled)
	_, err = Replay(ctx, ReplayOptions{Trace: workload.FileTrace(excerpt), Passes: 1})
	require.ErrorIs(t, err, context.Canceled)

	for _, phase := range []string{"fill", "fill map", "measure", "single stores"} {
		ctx, stop := cancelAt(t, phase)
		_, err = Speed(ctx, SpeedOptions{Seed: 1, Entries: 20_000, HashLen: 32, Passes: 1, misses: 300, Progress: stop})
		require.ErrorIs(t, err, context.Canceled, phase)
	}
	for _, phase := range []string{"fill", "measure"} {
		ctx, stop := cancelAt(t, phase)
		_, err = Churn(ctx, ChurnOptions{Seed: 1, Entries: 20_000, HashLen: 32, Rate: 1, LookupRate: 100, Phase: time.Minute, Rounds: 1, Progress: stop})
		require.ErrorIs(t, err, context.Canceled, phase)
	}
}

// cancelAt returns a context that is done once a phase has begun.
func cancelAt(t *testing.T, phase string) (context.Context, Progress) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, func(at string, _, _ int) {
		if at == phase {
			cancel()
		}
	}
}

func TestMemorySeesTheHeap(t *testing.T) {
	const size = 8 << 20
	before := SettledMemory()
	held := make([]byte, size)
	watch := startSampler(before)
	peak := watch.stop()
	after := SettledMemory()
	assert.InDelta(t, size, after.heap-before.heap, 1<<20)
	assert.GreaterOrEqual(t, peak, int64(size-1<<20), "what else was freed meanwhile counts against it")
	held[0]++ // alive until here
}

func TestMapped(t *testing.T) {
	before := Memory{heap: 10, resident: 100, runtime: 50}
	assert.EqualValues(t, 30, Memory{heap: 10, resident: 150, runtime: 70}.mapped(before))
	assert.EqualValues(t, 35, Memory{heap: 15, resident: 150, runtime: 70}.Since(before))
	assert.EqualValues(t, 0, Memory{heap: 15, resident: 110, runtime: 70}.mapped(before))
}

// slowHits is Belady's choice and LRU written down plainly, over stamps.
func slowHits(requests [][]uint32, capacity int, stamp func(request, position int, node uint32) int) (hits int64) {
	held := map[uint32]int{}
	for r, nodes := range requests {
		hits += int64(leadingIn(nodes, func(n uint32) bool { _, ok := held[n]; return ok }))
		for i, n := range nodes {
			held[n] = stamp(r, i, n)
		}
		for len(held) > capacity {
			var worst uint32
			for n, s := range held {
				if old, ok := held[worst]; !ok || s < old {
					worst = n
				}
			}
			delete(held, worst)
		}
	}
	return hits
}

func TestPoliciesAgainstPlainOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		requests := make([][]uint32, 40)
		for i := range requests { // paths in a tree whose nodes are numbered as in a heap
			node := uint32(1)
			for range 1 + rng.IntN(5) {
				requests[i] = append(requests[i], node)
				node = 2*node + uint32(rng.IntN(2))
			}
		}
		capacity := 5 + rng.IntN(20)
		soonest := func(r, i int, node uint32) int {
			for later := r + 1; later < len(requests); later++ {
				if j := slices.Index(requests[later], node); j >= 0 {
					return -(later*10 + j)
				}
			}
			return -1000 - i
		}
		require.Equal(t, slowHits(requests, capacity, soonest), beladyHits(requests, capacity))
		recent := func(r, i int, _ uint32) int { return r*10 - i }
		require.Equal(t, slowHits(requests, capacity, recent), lruHits(requests, capacity, true))
		require.GreaterOrEqual(t, beladyHits(requests, capacity), lruHits(requests, capacity, false))
	}
}

func TestLRUExamples(t *testing.T) {
	requests := [][]uint32{{1, 2, 3}, {4}, {1, 2, 3}}
	assert.EqualValues(t, 0, lruHits(requests, 3, false), "the head goes first, and nothing hits without it")
	assert.EqualValues(t, 2, lruHits(requests, 3, true))
	assert.EqualValues(t, 3, beladyHits(requests, 3))
	assert.EqualValues(t, 1, lruHits([][]uint32{{1, 2, 3}, {1, 2, 3}}, 1, true), "the beginning of a long chain stays")
	assert.EqualValues(t, 0, lruHits([][]uint32{{1, 2, 3}, {1, 2, 3}}, 1, false))
}
