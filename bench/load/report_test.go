package load

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench"
	"github.com/hitline/hitline/coordinator"
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
	go func() { done <- c.collect(2, func(s *Sample) { told = append(told, *s) }) }()
	give(second, 2*second, 10, 1000, false)
	give(second, 2*second, 30, 3000, false)
	give(2*second, 3*second, 20, 5000, false)
	give(3*second, 3*second+second/2, 7, 9000, true)
	give(2*second, 3*second, 20, 5000, false)
	give(3*second, 4*second, 5, 9000, false) // the other worker has ended
	give(4*second, 4*second, 0, 0, true)
	m := <-done
	assert.Equal(t, []Sample{{Elapsed: 1, RequestsPerSecond: 40, P50us: 3, P99us: 3}, {Elapsed: 2, RequestsPerSecond: 40, P50us: 5, P99us: 5}}, told)
	assert.Equal(t, told, m.samples)
	assert.EqualValues(t, 92, m.total.latency.TotalCount())

	s := m.step(50)
	assert.Equal(t, Step{
		Rate: 50, Seconds: 3, Requests: 92, Unsent: 7, RequestsPerSecond: 30.7,
		Latency:  Latency{P50us: 5, P90us: 9, P99us: 9, P999us: 9, Maxus: 9, Meanus: s.Meanus},
		P50usMin: 3, P50usMax: 5,
	}, s)
	assert.InDelta(t, (10*1+30*3+40*5+12*9)/92.0, s.Meanus, 0.1)

	var r Report
	r.add(s, m)
	assert.InDelta(t, 307, r.HashesPerSecond, 0.5)
	again := s
	again.P50usMin, again.P50usMax, again.Spread = 1, 4, 0.5
	r.add(again, m)
	assert.Equal(t, []any{int64(184), 6.0, 30.7, 1.0, 5.0, 0.5, 2},
		[]any{r.Requests, r.Seconds, r.RequestsPerSecond, r.P50usMin, r.P50usMax, r.Spread, len(r.Steps)})
	assert.InDelta(t, 307, r.HashesPerSecond, 0.5)
}

// A sample without lookups has no median, and bounds that there are not are not 0.
func TestBounds(t *testing.T) {
	collect := func(took ...int64) *measured {
		c := newCollector(1)
		m := make(chan *measured)
		go func() { m <- c.collect(1, func(*Sample) {}) }()
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
	r, table := report(collect(), collect(2000, 3000))
	assert.Contains(t, table, " us (2.0 to 3.0)\n")
	assert.InDelta(t, 2, r.P50usMin, 0)
	for _, m := range []*measured{collect(), collect(0)} {
		r, table = report(m)
		assert.Contains(t, table, "p50          5.0 us\n")
		assert.Contains(t, table, "spread       not known")
		assert.Zero(t, r.P50usMax)
	}
}

func TestDeviation(t *testing.T) {
	assert.InDelta(t, 0.5, deviation([]float64{1, 3}), 1e-9)
	assert.Zero(t, deviation([]float64{7, 7, 7}))
	assert.Zero(t, deviation(nil))
}

func TestValidate(t *testing.T) {
	good := Options{Connect: "x", Count: 1}
	require.NoError(t, good.Validate())
	for text, change := range map[string]func(*Options){
		"dialect \"tls\"":                  func(o *Options) { o.Dialect = "tls" },
		"-1 connections":                   func(o *Options) { o.Connections = -1 },
		"1025 requests under way":          func(o *Options) { o.Pipeline = 1025 },
		"9 to 3 hashes":                    func(o *Options) { o.Hashes = Lengths{Least: 9, Most: 3} },
		"0 to 4 hashes":                    func(o *Options) { o.Hashes = Lengths{Each: []int{4, 0}} },
		"-5 entries":                       func(o *Options) { o.Entries = -5 },
		"shares of 1.5 hits":               func(o *Options) { o.HitShare = 1.5 },
		"0.6 of operations are stores":     func(o *Options) { o.Stores, o.Evicts = 0.3, 0.3 },
		"misses at \"end\"":                func(o *Options) { o.MissAt = "end" },
		"a rate of 0 requests":             func(o *Options) { o.Rates = []float64{5, 0} },
		"none may be negative":             func(o *Options) { o.Warmup = -1 },
		"-1 requests":                      func(o *Options) { o.Count = -1 },
		"how long to measure or how many ": func(o *Options) { o.Duration = 1 },
		"how long to measure or":           func(o *Options) { o.Count = 0 },
	} {
		o := good
		change(&o)
		err := o.Validate()
		require.ErrorIs(t, err, bench.ErrOptions, text)
		assert.ErrorContains(t, err, text)
	}
	o := Options{Duration: 3 * time.Second, Pool: coordinator.Pool{}}
	assert.Equal(t, 300*time.Millisecond, o.window())
	o.Duration = time.Hour
	assert.Equal(t, time.Second, o.window())
}
