package index_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/index"
)

const (
	churnLookups = 2000        // that fall due a second
	churnStores  = 100_000     // entries that are stored a second beside them
	churnPhase   = time.Second // of a quiet and of a busy phase
	// churnBatch is how many hashes are stored at once; it divides chainLen.
	churnBatch = 128
)

// BenchmarkChurn looks up chains that stay in a full index, quietly and then while another goroutine
// stores 100,000 entries a second. Half of what goes to make room is evicted by its keys, half by the bound. An operation
// is a quiet phase of a second and a busy one: -benchtime 10x makes ten rounds.
//
// Lookups of 8,192 hashes fall due by a clock, 2,000 a second, and each counts from when it was
// due: a stall shows as the waits of all that fell due meanwhile. Those that were not begun by the
// end of a phase count with their wait until then, which is a lower bound; unbegun/round says how many.
// Percentiles are those of all rounds; p99-ratio is the median of the rounds' ratios, busy to quiet.
func BenchmarkChurn(b *testing.B) {
	for _, n := range benchmarkEntries(b) {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			c := newChurn(b, n)
			var quiet, busy waits
			var ratios []float64
			for b.Loop() {
				q, err := c.phase(b.Context())
				require.NoError(b, err)
				stored := c.stored.Load()
				v, err := c.busyPhase(b.Context())
				require.NoError(b, err)
				b.ReportMetric(float64(c.stored.Load()-stored)/churnPhase.Seconds(), "stores/s")
				ratios = append(ratios, v.percentile(99)/q.percentile(99))
				quiet.add(q)
				busy.add(v)
			}
			b.ReportMetric(measure.Median(ratios), "p99-ratio")
			for name, w := range map[string]waits{"quiet": quiet, "busy": busy} {
				for p, of := range map[string]float64{"p50": 50, "p99": 99, "max": 100} {
					b.ReportMetric(w.percentile(of), name+"-"+p+"-us")
				}
			}
			b.ReportMetric(float64(quiet.unbegun+busy.unbegun)/float64(len(ratios)), "unbegun/round")
			b.ReportMetric(float64(c.lost), "lost-chains")
			require.LessOrEqual(b, c.x.Stats().Entries, int64(n), "the bound")
		})
	}
}

// waits are how long lookups took from when they were due.
type waits struct {
	all     []time.Duration
	unbegun int // of these, not begun when their phase ended
}

func (w *waits) add(more waits) {
	w.all = append(w.all, more.all...)
	w.unbegun += more.unbegun
}

// percentile returns a percentile in microseconds.
func (w waits) percentile(p float64) float64 {
	return measure.PercentileUs(slices.Sorted(slices.Values(w.all)), p)
}

// atRate calls f at a rate a second for so long and returns how long it took from when each
// call was due. Calls that are due at the end and not begun have waited until then.
func atRate(ctx context.Context, rate float64, d time.Duration, nap func(time.Duration), f func() error) (waits, error) {
	var w waits
	due := func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	start := time.Now()
	for i := range int(d.Seconds() * rate) {
		if time.Since(start) >= d {
			w.all, w.unbegun = append(w.all, time.Since(start)-due(i)), w.unbegun+1
			continue
		}
		if err := measure.Until(ctx, start.Add(due(i)), nap); err != nil {
			return w, err
		}
		if err := f(); err != nil {
			return w, err
		}
		w.all = append(w.all, time.Since(start)-due(i))
	}
	return w, nil
}

// churn is an index of which about half of the entries stay, and the others come and go.
type churn struct {
	x      *pool
	stay   *workload.Chains
	seen   []int64 // by chain that stays: stored when it was last looked up whole
	room   int64   // entries that do not stay
	next   int     // lookup
	missed []int   // chains to be stored again after the phase
	lost   int     // chains that were evicted, rightly
	stored atomic.Int64

	// Of the goroutine that stores.
	chains  int // the number of the chain under way
	evicts  bool
	writer  *index.Writer
	in, out *rand.ChaCha8 // hashes that are stored, and those evicted; out may be nil
	at      int           // hashes of the chain that are stored
	evicted int           // entries by their keys
	batch   []byte
}

// newChurn fills an index: with chains that go first, then with those that stay.
func newChurn(tb testing.TB, entries int) *churn {
	stay := max(entries/2/chainLen, 1)
	entries = max(entries, 2*chainLen)
	c := &churn{
		x: newPool(tb, entries, entries), room: int64(entries - stay*chainLen), batch: make([]byte, churnBatch*hashLen),
		stay: workload.NewChains(workload.ChainOptions{Chains: stay, Hashes: chainLen, BlockSize: 1, Seed: 1}), seen: make([]int64, stay),
		chains: -1, at: chainLen,
	}
	for range c.room / churnBatch {
		require.NoError(tb, c.storeBatch())
	}
	storeChains(tb, c.x, c.stay)
	c.evicts = true
	return c
}

// storeBatch stores the next hashes of ever new chains. Every other chain evicts one by its
// keys, which was stored a while before, so that each goes once.
func (c *churn) storeBatch() error {
	const seed = workload.Seed(2)
	if c.at == chainLen {
		c.chains++
		c.at, c.writer = 0, new(index.Writer)
		c.in, c.out = seed.Bytes(workload.ForOthers, uint64(c.chains)), nil
		if lag := int(c.room)/chainLen/2 | 1; c.evicts && c.chains%2 == 0 && c.chains >= lag {
			c.out = seed.Bytes(workload.ForOthers, uint64(c.chains-lag))
		}
	}
	_, _ = c.in.Read(c.batch) // never fails
	if err := c.x.Store(c.writer, []int{0}, c.batch, hashLen); err != nil {
		return err
	}
	c.at += churnBatch
	if c.out == nil {
		return nil
	}
	_, _ = c.out.Read(c.batch)
	n, err := c.x.Evict(0, c.batch, hashLen)
	c.evicted += n
	return err
}

// phase looks up the chains that stay, in turn. Those that were lost are stored again
// afterwards, as the lookups behind would wait for that.
func (c *churn) phase(ctx context.Context) (waits, error) {
	runtime.GC() // not while the clock runs
	w, err := atRate(ctx, churnLookups, churnPhase, measure.Nap, c.lookup)
	for _, i := range c.missed {
		if err == nil {
			err = c.x.store(c.stay.Chain(i))
		}
		c.seen[i] = c.stored.Load()
	}
	c.lost += len(c.missed)
	c.missed = c.missed[:0]
	return w, err
}

// busyPhase is a phase with stores beside it.
func (c *churn) busyPhase(ctx context.Context) (waits, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := atRate(ctx, churnStores/churnBatch, time.Hour, time.Sleep, func() error {
			defer c.stored.Add(churnBatch)
			return c.storeBatch()
		})
		ended <- err
	}()
	w, err := c.phase(ctx)
	stop()
	if storeErr := <-ended; err == nil && storeErr != context.Canceled {
		err = storeErr
	}
	return w, err
}

// lookup makes one lookup and judges it: as many entries as do not stay were less recently used
// than a chain when it was last looked up, and until half of them have made way it must be whole.
func (c *churn) lookup() error {
	i := c.next
	c.next = (i + 1) % c.stay.Len()
	n := c.x.leading(c.stay.Chain(i))
	stored := c.stored.Load()
	switch {
	case n == chainLen:
		c.seen[i] = stored
	case stored-c.seen[i] < c.room/2:
		return fmt.Errorf("%d of %d hashes of a chain that was used %d stored entries ago", n, chainLen, stored-c.seen[i])
	case !slices.Contains(c.missed, i):
		c.missed = append(c.missed, i)
	}
	return nil
}

// A call that takes 10 ms holds up those that are due meanwhile, one every half of a millisecond.
func TestAtRateCountsFromWhenDue(t *testing.T) {
	for stalled, want := range map[int]struct {
		p99, most float64
		unbegun   int
	}{
		100: {10_000 - 2*490, 10_000, 0}, // each waits for the stall and for the 10 microseconds of those in front
		198: {9000, 10_000, 2},           // two are due behind it, and not begun at the end
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			w, err := atRate(t.Context(), churnLookups, 100*time.Millisecond, time.Sleep, func() error {
				if calls++; calls == stalled {
					time.Sleep(10*time.Millisecond - 10*time.Microsecond)
				}
				time.Sleep(10 * time.Microsecond)
				return nil
			})
			require.NoError(t, err)
			assert.Len(t, w.all, 200)
			assert.Equal(t, []float64{10, want.p99, want.most}, []float64{w.percentile(50), w.percentile(99), w.percentile(100)}, "%d", stalled)
			assert.Equal(t, want.unbegun, w.unbegun)
		})
	}
}

// What is stored makes room by evictions as much as by the bound, and a chain that is lost without
// a reason is an error.
func TestChurn(t *testing.T) {
	c := newChurn(t, 10*chainLen)
	evicted := c.x.Stats().Evicted
	for range 20 * chainLen / churnBatch {
		require.NoError(t, c.storeBatch())
	}
	assert.InDelta(t, 20*chainLen, c.x.Stats().Evicted-evicted, churnBatch, "each makes one go")
	assert.Equal(t, 10*chainLen, c.evicted, "half of them by their keys, of what is there")
	require.Error(t, c.lookup(), "nobody counted what was stored")
	c.stored.Add(20 * chainLen)
	for range 2 * c.stay.Len() {
		require.NoError(t, c.lookup())
	}
	assert.NotEmpty(t, c.missed)
	lost := len(c.missed)
	w, err := c.phase(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, w.all)
	assert.Equal(t, lost, c.lost)
	require.NoError(t, c.lookup(), "it is there again")
	assert.Empty(t, c.missed)
}
