package load

import (
	"strings"
	"testing"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Windows of equal time are one sample; what is cut short is in the total only.
func TestCollect(t *testing.T) {
	c := newCollector(2)
	give := func(from, to, requests, took int64, last bool) {
		w := c.fresh(from, to)
		w.requests, w.hashes, w.last, w.unsent = requests, 10*requests, last, 1
		for range requests {
			require.NoError(t, w.latency.RecordValue(took))
		}
		c.full <- w
	}
	const second = int64(time.Second)
	var told []Sample
	done := make(chan *measured)
	go func() { done <- c.collect(2, func(s Sample) { told = append(told, s) }) }()
	give(second, 2*second, 10, 1000, false)
	give(second, 2*second, 30, 3000, false)
	give(2*second, 3*second, 20, 5000, false)
	give(3*second, 3*second+second/2, 7, 9000, true)
	give(2*second, 3*second, 20, 5000, false)
	give(3*second, 4*second, 5, 9000, false) // the other worker has ended
	give(4*second, 4*second, 0, 0, true)
	m := <-done
	assert.Equal(t, []Sample{{Elapsed: 1, RequestsPerSecond: 40, P50us: 3, P99us: 3}, {Elapsed: 2, RequestsPerSecond: 40, P50us: 5, P99us: 5}}, told)
	assert.Equal(t, []float64{40, 40}, m.rates)
	assert.EqualValues(t, 92, m.total.latency.TotalCount())

	const nine = 9.01 // 9 to 0.1 %
	s := m.step(50)
	assert.Equal(t, Step{
		Rate: 50, Seconds: 3, Requests: 92,
		Figures: Figures{
			RequestsPerSecond: 30.7, LookupsPerSecond: 30.7, HashesPerSecond: 306.7, Unsent: 7,
			Latency:  measure.Latency{P50us: 5, P90us: nine, P99us: nine, P999us: nine, MaxUs: nine, MeanUs: s.MeanUs},
			P50usMin: 3, P50usMax: 5, samples: 2,
		},
	}, s)
	assert.InDelta(t, (10*1+30*3+40*5+12*9)/92.0, s.MeanUs, 0.1)
}

// One step has figures; several have none together, whatever their rates were.
func TestSeveralSteps(t *testing.T) {
	m := &measured{total: window{from: 0, to: 2e9, requests: 10, latency: newHistogram()}}
	for range 10 {
		m.total.took(5000)
	}
	var r Report
	r.add(m.step(5), m)
	require.NotNil(t, r.Figures)
	assert.Equal(t, []float64{5, 5}, []float64{r.RequestsPerSecond, r.P50us})
	r.add(m.step(7), m)
	assert.Nil(t, r.Figures)
	assert.Equal(t, []any{int64(20), 4.0, 2}, []any{r.Requests, r.Seconds, len(r.Steps)})
	var text strings.Builder
	require.NoError(t, measure.WriteJSON(&text, r))
	head, steps, _ := strings.Cut(text.String(), `"steps":`)
	assert.NotContains(t, head, "p50_us")
	assert.NotContains(t, head, "requests_per_s")
	assert.Equal(t, 2, strings.Count(steps, `"p50_us":5,`))
	text.Reset()
	require.NoError(t, r.WriteTable(&text))
	assert.NotContains(t, text.String(), "\np50")
	assert.Contains(t, text.String(), "requests     20\n")
}

// What was never sent makes the figures from there on lower bounds, and they say so.
func TestAtLeast(t *testing.T) {
	m := &measured{total: window{from: 0, to: 1e9, latency: newHistogram()}}
	for range 80 {
		m.total.took(100_000)
	}
	m.total.recordUnsent(700_000_000)
	other := window{latency: newHistogram()}
	for range 19 {
		other.recordUnsent(400_000_000)
	}
	m.total.add(&other)
	r := Report{Mode: "open"}
	r.add(m.step(100), m)
	assert.EqualValues(t, 20, r.Unsent)
	assert.InDelta(t, 400_000, r.AtLeast, 0.1)
	assert.InEpsilon(t, 100, r.P50us, 1e-3)
	assert.InEpsilon(t, 400_000, r.P99us, 1e-3)
	assert.InEpsilon(t, 700_000, r.MaxUs, 1e-3)
	var text strings.Builder
	require.NoError(t, r.WriteTable(&text))
	assert.Contains(t, text.String(), "latency      with stalls\np50          100.0 us\n")
	for _, name := range []string{"p90          ", "p99          ", "max          ", "mean         "} {
		assert.Contains(t, text.String(), name+"≥ ")
	}
	assert.Contains(t, text.String(), "unsent       20\n")
	r.add(m.step(100), m)
	text.Reset()
	require.NoError(t, r.WriteTable(&text))
	assert.Regexp(t, ` 20 +100\.0 +≥ 400\S+ +≥ 7\S+ +≥ 7\S+\n`, text.String(), "each rate has a row")
}

// A sample without lookups has no median, and bounds that there are not are not 0.
func TestBounds(t *testing.T) {
	collect := func(took ...int64) *measured {
		c := newCollector(1)
		m := make(chan *measured)
		go func() { m <- c.collect(1, func(Sample) {}) }()
		const second = int64(time.Second)
		for i, ns := range append(took, 5000) {
			w := c.fresh(int64(i)*second, int64(i+1)*second)
			if ns > 0 {
				w.requests = 1
				require.NoError(t, w.latency.RecordValue(ns))
			}
			w.last = i == len(took)
			c.full <- w
		}
		return <-m
	}
	report := func(steps ...*measured) (r Report, table string) {
		for _, m := range steps {
			r.add(m.step(1), m)
		}
		var text strings.Builder
		require.NoError(t, r.WriteTable(&text))
		return r, text.String()
	}
	_, table := report(collect(0, 3000, 0, 4000))
	assert.Contains(t, table, " us (3.0 to 4.0)\n")
	assert.Contains(t, table, "spread       100.0 %\n")
	for _, m := range []*measured{collect(), collect(0)} {
		r, table := report(m)
		assert.Contains(t, table, "latency      round trip\np50          5.0 us\n")
		assert.Contains(t, table, "spread       not known")
		assert.Zero(t, r.P50usMax)
	}
}

func TestDeviation(t *testing.T) {
	assert.InDelta(t, 0.5, deviation([]float64{1, 3}), 1e-9)
	assert.Zero(t, deviation([]float64{7, 7, 7}))
	assert.Zero(t, deviation(nil))
}

// checkOptions sees that good options are taken, and refused after each change, with its text.
func checkOptions[O interface{ Validate() error }](t *testing.T, good O, changes map[string]func(*O)) {
	t.Helper()
	require.NoError(t, good.Validate())
	for text, change := range changes {
		o := good
		change(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions, text)
		assert.ErrorContains(t, err, text)
	}
}

func TestValidate(t *testing.T) {
	checkOptions(t, Options{Connect: "x", Requests: 1}, map[string]func(*Options){
		"dialect \"tls\"":                    func(o *Options) { o.Dialect = "tls" },
		"-1 connections":                     func(o *Options) { o.Connections = -1 },
		"1025 requests under way":            func(o *Options) { o.Pipeline = 1025 },
		"3 hashes at most; give 9":           func(o *Options) { o.Hashes = Lengths{Least: 9, Most: 3} },
		"0 hashes; give 1 to 2000000":        func(o *Options) { o.Hashes = Lengths{Least: 0, Most: 4} },
		"-5 entries":                         func(o *Options) { o.Entries = -5 },
		"a share of 1.5 of lookups that hit": func(o *Options) { o.HitShare = 1.5 },
		"0.6 of operations are stores":       func(o *Options) { o.Stores, o.Evicts = 0.3, 0.3 },
		"a miss at \"end\"":                  func(o *Options) { o.MissAt = "end" },
		"a rate of 0 requests":               func(o *Options) { o.Rates = []float64{5, 0} },
		"none may be negative":               func(o *Options) { o.Warmup = -1 },
		"-1 requests":                        func(o *Options) { o.Requests = -1 },
		"how long to measure or how many ":   func(o *Options) { o.Duration = 1 },
		"how long to measure or":             func(o *Options) { o.Requests = 0 },
	})
	o := Options{Duration: 3 * time.Second}
	assert.Equal(t, 300*time.Millisecond, o.window())
	o.Duration = time.Hour
	assert.Equal(t, time.Second, o.window())
}
