package indexbench

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

func churnOptions() ChurnOptions {
	return ChurnOptions{Seed: 1, Entries: 20_000, HashLen: 32, Rate: 50_000, LookupRate: 2000, Phase: 20 * time.Millisecond, Rounds: 2}
}

// steady is an index that holds all that is asked. Its lookups take as long as took
// says, by their number from 1.
type steady struct {
	took    func(call int) time.Duration
	hashLen int
	calls   int
}

func (s *steady) store(*index.Writer, []byte, int) error      { return nil }
func (s *steady) evict(keys []byte, hashLen int) (int, error) { return len(keys) / hashLen, nil }
func (s *steady) stats() index.Stats                          { return index.Stats{} }
func (s *steady) reader(hashLen int) reader                   { s.hashLen = hashLen; return s }

func (s *steady) leading(keys []byte) int {
	s.calls++
	time.Sleep(s.took(s.calls))
	return len(keys) / s.hashLen
}

const (
	stallPhase   = 100 * time.Millisecond
	stallLookups = 200 // that fall due in a phase
)

// stalled measures an index of which one lookup of the busy phase, by its number from 1,
// takes 10 ms more than the 10 microseconds that all take. The clock is that of a bubble.
func stalled(t *testing.T, call int) (r ChurnReport) {
	synctest.Test(t, func(t *testing.T) {
		o := churnOptions()
		o.Rounds, o.Phase, o.nap = 1, stallPhase, time.Sleep
		o.open = func(int64, int64, int) (subject, error) {
			return &steady{took: func(n int) time.Duration {
				if n == stallLookups+call {
					return 10*time.Millisecond + 10*time.Microsecond
				}
				return 10 * time.Microsecond
			}}, nil
		}
		var err error
		r, err = Churn(t.Context(), o)
		require.NoError(t, err)
	})
	return r
}

// A lookup that takes 10 ms holds up those that are due meanwhile: one every half of a
// millisecond. Each waits for the stall, and for the 10 microseconds of those in front.
func TestChurnCountsFromWhenDue(t *testing.T) {
	r := stalled(t, 100)
	flat := Spread{10, 10}
	assert.Equal(t, Waits{P50us: 10, P99us: 10, MaxUs: 10, P50Spread: flat, P99Spread: flat, MaxSpread: flat, Lookups: stallLookups}, r.Quiet)
	assert.Equal(t, Waits{
		P50us: 10, P99us: 10_010 - 2*490, MaxUs: 10_010, // the third of 200 from above
		P50Spread: flat, P99Spread: Spread{9030, 9030}, MaxSpread: Spread{10_010, 10_010}, Lookups: stallLookups,
	}, r.Churn)
	assert.Equal(t, 903.0, r.P99Ratio)
	assert.Equal(t, 903.0, r.P99PairRatio)
	assert.Equal(t, Spread{903, 903}, r.P99PairRatioSpread)
	assert.Equal(t, 1001.0, r.MaxRatio)
	assert.Positive(t, r.StoreRate)
}

// A stall across the end of a phase counts in full, and those that it kept from being
// begun count until then.
func TestChurnCountsWhatWasNotBegun(t *testing.T) {
	r := stalled(t, stallLookups-2) // of which two are due after it
	assert.Equal(t, stallLookups, r.Churn.Lookups)
	assert.Equal(t, 2, r.Churn.Unbegun)
	assert.Equal(t, 10_010.0, r.Churn.MaxUs)
	assert.True(t, r.Churn.MaxAtLeast, "one that was not begun may have taken longer")
	assert.Equal(t, 9010.0, r.Churn.P99us, "due 1 ms behind, and not begun")
	assert.True(t, r.Churn.P99AtLeast)
	assert.False(t, r.Churn.P50AtLeast)
	assert.Zero(t, r.Quiet.Unbegun)

	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	assert.Contains(t, table.String(), "≥9010.00 (9010.00–9010.00)")
	assert.Contains(t, table.String(), "≥901.00x")
	assert.NotContains(t, table.String(), "≥10.00 ")
}

// An index that is too slow for the rate waits longer and longer, and says so.
func TestChurnThatDoesNotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := churnOptions()
		o.Rounds, o.Phase, o.nap = 1, stallPhase, time.Sleep
		o.open = func(int64, int64, int) (subject, error) {
			return &steady{took: func(int) time.Duration { return 2 * time.Millisecond }}, nil
		}
		r, err := Churn(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, stallLookups, r.Quiet.Lookups)
		assert.Equal(t, 150, r.Quiet.Unbegun)
		assert.True(t, r.Quiet.P50AtLeast && r.Quiet.P99AtLeast && r.Quiet.MaxAtLeast)
		assert.Zero(t, r.P99Ratio)
		var table bytes.Buffer
		require.NoError(t, r.WriteTable(&table))
		assert.Contains(t, table.String(), "unknown")
	})
}

// The ratio of pairs is the median of the rounds' ratios: of three rounds one stalls.
func TestChurnPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := churnOptions()
		o.Rounds, o.Phase, o.nap = 3, stallPhase, time.Sleep
		o.open = func(int64, int64, int) (subject, error) {
			return &steady{took: func(n int) time.Duration {
				switch phase := (n - 1) / stallLookups; {
				case phase == 3:
					return 400 * time.Microsecond
				case phase%2 == 1:
					return 15 * time.Microsecond
				}
				return 10 * time.Microsecond
			}}, nil
		}
		r, err := Churn(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, 40.0, r.P99Ratio, "of all lookups")
		assert.Equal(t, 1.5, r.P99PairRatio)
		assert.Equal(t, Spread{1.5, 40}, r.P99PairRatioSpread)
		var table bytes.Buffer
		require.NoError(t, r.WriteTable(&table))
		assert.Contains(t, table.String(), "1.50 (1.50–40.00)")
	})
}

func TestWaitsBelowTheLeastUnbegun(t *testing.T) {
	var w waits
	var round roundWaits
	for i := range 98 {
		round.done = append(round.done, time.Duration(i+1)*time.Microsecond)
	}
	round.unbegun = []time.Duration{time.Second, 98500}
	w.add(round)
	r := w.summarize()
	assert.Equal(t, 50.0, r.P50us)
	assert.Equal(t, 98.5, r.P99us)
	assert.Equal(t, 1e6, r.MaxUs)
	assert.Equal(t, []bool{false, true, true}, []bool{r.P50AtLeast, r.P99AtLeast, r.MaxAtLeast})
	w.add(roundWaits{done: []time.Duration{time.Microsecond}})
	assert.Equal(t, Spread{1, 50}, w.summarize().P50Spread)
	assert.Equal(t, 98.5, w.summarize().P99us, "over all rounds")
}

func TestChurn(t *testing.T) {
	r, err := Churn(t.Context(), churnOptions())
	require.NoError(t, err)
	got := fields(t, r.WriteJSON)
	wantSetup(t, got, 1)
	for _, name := range []string{"p99_ratio", "max_ratio", "store_rate", "evict_rate"} { // 0 on a machine that stalls
		assert.Contains(t, got, name)
	}
	for _, phase := range []string{"quiet", "churn"} {
		positive(t, got[phase].(map[string]any), "p50_us", "p99_us", "max_us", "lookups")
		assert.EqualValues(t, 2*40, got[phase].(map[string]any)["lookups"], "as many as were due")
	}
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	assert.Contains(t, table.String(), "quiet")
}

func TestChurnFindsWrongAnswers(t *testing.T) {
	o := churnOptions()
	o.open = lying(func(_ []byte, n int) int { return n - 1 }, nil)
	_, err := Churn(t.Context(), o)
	require.ErrorIs(t, err, ErrWrong)
	o.open = unbounded
	_, err = Churn(t.Context(), o)
	for err == nil && o.Phase < 10*time.Second { // the machine was busy, and nothing was stored
		o.Phase *= 8
		_, err = Churn(t.Context(), o)
	}
	require.ErrorIs(t, err, ErrWrong)
}

func TestChurnRestoresWhatMayHaveGone(t *testing.T) {
	o := churnOptions()
	x, err := newPool(int64(o.Entries), int64(o.Entries), o.HashLen)
	require.NoError(t, err)
	o.open = func(int64, int64, int) (subject, error) { return x, nil }
	o.nap = time.Sleep
	setDefaults(&o.Progress, &o.open)
	c := &churn{ChurnOptions: o, ctx: t.Context()}
	require.NoError(t, c.fill())
	for range 4 {
		require.NoError(t, c.feed.chain())
		c.stored.Add(ChainLen)
	}
	for range 2 {
		require.NoError(t, c.phase(t.Context(), &c.quiet))
		assert.Equal(t, 1, c.report.Lost, "after the first phase it is there again")
	}
}

// requests are digests of what an index was asked.
type requests struct {
	subject
	stores, evicts, lookups hash.Hash
}

func newRequests(x subject) *requests { return &requests{x, sha256.New(), sha256.New(), sha256.New()} }

func (r *requests) store(w *index.Writer, keys []byte, hashLen int) error {
	r.stores.Write(keys)
	return r.subject.store(w, keys, hashLen)
}

func (r *requests) evict(keys []byte, hashLen int) (int, error) {
	r.evicts.Write(keys)
	return r.subject.evict(keys, hashLen)
}

func (r *requests) reader(hashLen int) reader { return requestsReader{r.subject.reader(hashLen), r} }

func (r *requests) sum() string {
	return string(r.lookups.Sum(r.evicts.Sum(r.stores.Sum(nil))))
}

type requestsReader struct {
	reader
	to *requests
}

func (r requestsReader) leading(keys []byte) int {
	r.to.lookups.Write(keys)
	return r.reader.leading(keys)
}

// One seed asks the same, in the same order; another asks something else.
func TestSeed(t *testing.T) {
	churned := func(seed uint64) (sum string) {
		synctest.Test(t, func(t *testing.T) {
			x := newRequests(&steady{took: func(int) time.Duration { return 10 * time.Microsecond }})
			o := churnOptions()
			o.Seed, o.Phase, o.nap = seed, stallPhase, time.Sleep
			o.open = func(int64, int64, int) (subject, error) { return x, nil }
			_, err := Churn(t.Context(), o)
			require.NoError(t, err)
			sum = x.sum()
		})
		return sum
	}
	timed := func(seed uint64) string {
		var x *requests // all indexes write to the digests of the first
		o := SpeedOptions{Entries: 20_000, HashLen: 32, Passes: 1, Seed: seed, misses: 300}
		o.open = func(maxEntries, want int64, hashLen int) (subject, error) {
			pool, err := newPool(maxEntries, want, hashLen)
			if x == nil {
				x = newRequests(pool)
			}
			return &requests{pool, x.stores, x.evicts, x.lookups}, err
		}
		_, err := Speed(t.Context(), o)
		require.NoError(t, err)
		return x.sum()
	}
	for name, asked := range map[string]func(seed uint64) string{"churn": churned, "speed": timed} {
		first := asked(1)
		assert.Equal(t, first, asked(1), name)
		second := asked(2)
		for i := range 3 { // stores, evicts, lookups
			if part := first[32*i : 32*i+32]; name == "churn" || i != 1 { // nothing is evicted for speed
				assert.False(t, strings.HasPrefix(second[32*i:], part), "%s, %d", name, i)
			}
		}
	}
}
